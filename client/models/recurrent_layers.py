"""Make torch's recurrent layers work record by record: LSTM, GRU, RNN and their cells.

`torch.func.vmap`, which separates records' gradients, cannot run torch's own kernels of recurrent
layers. `unroll_recurrent_layers` gives the layers of a network a forward pass that computes the
same function in plain operations, one step of a sequence after another. Parameters, their names and
the returned values are those of torch.

    >>> import torch
    >>> layer = nn.GRU(3, 4, batch_first=True)
    >>> expected = layer(torch.ones(2, 5, 3))[0]
    >>> unroll_recurrent_layers(layer)
    >>> bool(torch.allclose(layer(torch.ones(2, 5, 3))[0], expected, atol=1e-6))
    True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

State = tuple[Tensor, ...]


def unroll_recurrent_layers(module: nn.Module) -> None:
    """Let torch's own recurrent layers and cells in a module compute in plain operations."""
    for layer in module.modules():
        if type(layer) in _UNROLLED and "forward" not in vars(layer):
            layer.__class__ = _UNROLLED[type(layer)]


class _Unrolled(nn.RNNBase):
    """A recurrent layer in plain operations."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return `(outputs, last state)`, as torch does."""
        if not isinstance(input, Tensor):
            expected = "a recurrent layer takes a tensor [rows, steps, inputs]"
            raise TypeError(f"{expected}, got {type(input).__name__}: pad sequences to one length")
        single = input.dim() == 2  # one sequence without an axis of rows
        x = input.unsqueeze(0 if self.batch_first else 1) if single else input
        x = x.transpose(0, 1) if self.batch_first else x
        ways, depth = 1 + self.bidirectional, self.num_layers
        lstm = isinstance(self, nn.LSTM)
        given: tuple[Tensor, ...] = () if hx is None else tuple(hx) if lstm else (hx,)
        if single:
            given = tuple(part.unsqueeze(1) for part in given)
        if not given:
            sizes = (self.proj_size or self.hidden_size, self.hidden_size)[: 1 + lstm]
            given = tuple(x.new_zeros(ways * depth, x.shape[1], size) for size in sizes)
        last: list[State] = []
        for number in range(depth):
            outputs = []
            for way in range(ways):
                start = tuple(part[ways * number + way] for part in given)
                own = self._run(x, start, number, reverse=bool(way))
                outputs.append(own[0])
                last.append(own[1])
            x = torch.cat(outputs, dim=2) if ways > 1 else outputs[0]
        state = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        x = x.transpose(0, 1) if self.batch_first else x
        if single:
            x = x.squeeze(0 if self.batch_first else 1)
            state = tuple(part.squeeze(1) for part in state)
        return x, state if lstm else state[0]

    def _run(self, x: Tensor, state: State, number: int, *, reverse: bool) -> tuple[Tensor, State]:
        """Run one layer in one direction over `[steps, rows, inputs]`."""
        end = f"_l{number}{'_reverse' * reverse}"
        of_input, of_state = (getattr(self, f"weight_{name}{end}") for name in ("ih", "hh"))
        biases = [getattr(self, f"bias_{of}{end}") if self.bias else None for of in ("ih", "hh")]
        project = getattr(self, f"weight_hr{end}") if self.proj_size else None
        step = _choose_step(self)
        outputs: list[Tensor] = []
        steps = list(linear(x, of_input, biases[0]))
        for row in reversed(steps) if reverse else steps:
            hidden, *rest = step(row, linear(state[0], of_state, biases[1]), state)
            state = (hidden if project is None else linear(hidden, project), *rest)
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if reverse else outputs), state


def _choose_step(layer: nn.Module) -> Callable[[Tensor, Tensor, State], State]:
    """Return the function of one step of a layer or cell."""
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _step_lstm
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _step_gru
    function = torch.tanh if layer.nonlinearity == "tanh" else torch.relu
    return lambda x, h, _: (function(x + h),)


def _step_lstm(x: Tensor, h: Tensor, state: State) -> State:
    """Return the new hidden and cell state (Hochreiter and Schmidhuber 1997, gates as in torch)."""
    enter, forget, new, leave = (x + h).chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def _step_gru(x: Tensor, h: Tensor, state: State) -> State:
    """Return the new hidden state (Cho et al. 2014, with torch's reset gate)."""
    (x_reset, x_update, x_new), (h_reset, h_update, h_new) = x.chunk(3, -1), h.chunk(3, -1)
    new = torch.tanh(x_new + torch.sigmoid(x_reset + h_reset) * h_new)
    update = torch.sigmoid(x_update + h_update)
    return (update * state[0] + (1 - update) * new,)


class _UnrolledCell(nn.RNNCellBase):
    """A cell, one step of a recurrent layer, in plain operations."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Return the new state, as torch does."""
        lstm = isinstance(self, nn.LSTMCell)
        zero = input.new_zeros((*input.shape[:-1], self.hidden_size))
        state: State = (zero, zero) if hx is None else tuple(hx) if lstm else (hx,)
        of_input = linear(input, self.weight_ih, self.bias_ih)
        found = _choose_step(self)(of_input, linear(state[0], self.weight_hh, self.bias_hh), state)
        return found if lstm else found[0]


class _UnrolledLSTM(_Unrolled, nn.LSTM):
    pass


class _UnrolledGRU(_Unrolled, nn.GRU):
    pass


class _UnrolledRNN(_Unrolled, nn.RNN):
    pass


class _UnrolledLSTMCell(_UnrolledCell, nn.LSTMCell):
    pass


class _UnrolledGRUCell(_UnrolledCell, nn.GRUCell):
    pass


class _UnrolledRNNCell(_UnrolledCell, nn.RNNCell):
    pass


_UNROLLED: dict[type[nn.Module], type[nn.Module]] = {
    nn.LSTM: _UnrolledLSTM,
    nn.GRU: _UnrolledGRU,
    nn.RNN: _UnrolledRNN,
    nn.LSTMCell: _UnrolledLSTMCell,
    nn.GRUCell: _UnrolledGRUCell,
    nn.RNNCell: _UnrolledRNNCell,
}
