"""Three parties in their folders, and a server of the protocol that speaks the wire to them."""

import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.agreement import Agreement
from parley.client.contract.message_frames import (
    WIRE_VERSION,
    MessageFrame,
    decode_frame,
    encode_frame,
)
from parley.client.contract.roster import Deployment, RosterParty, render_deployment
from parley.client.data.party_block import PartyBlock
from parley.client.party.last_write_times import Uptime
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.party_service import PartyService
from parley.client.party.party_session import PartySession
from parley.client.party.policy_writing import format_policy
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.messages import Roster, decode
from parley.secure_agg.pairwise_server import MaskingServer
from parley.secure_agg.primitives import derive_signing_public_key
from parley.secure_agg.protocol_parameters import RunParameters
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

# A day ahead of what ledgers write: no test depends on how long it takes.
NOW = time.time() + 24 * 3600.0
FEATURES = 4
SIZES = (40, 50, 60)

NETWORKS = ("fedavg", "distributed-dp-sgd")


def rows_of(party, records, features=FEATURES, intercept=True):
    """Prepared rows and labels of one party, as a launcher writes them."""
    from parley.client.models.row_quantization import prepare_rows

    rng = np.random.default_rng([7, party])
    rows = prepare_rows(rng.normal(size=(records, features)), intercept=intercept)
    return rows, np.where(rng.random(records) < 0.5, -1.0, 1.0)


class World:
    """A deployment on disk; every request may be served by a service opened anew."""

    def __init__(
        self,
        root: Path,
        *,
        overrides=(),
        policy=None,
        reopen=True,
        run="r-1",
        sizes=SIZES,
        keys=1,
        **data,
    ):
        self.root, self.reopen, self.run, self.sizes = root, reopen, run, sizes
        self.count = len(sizes)
        keys = [bytes([i + keys]) * 32 for i in range(self.count)]
        self.deployment = Deployment(
            server_address="",
            parties=tuple(
                RosterParty(name=f"site-{i}", identity=derive_signing_public_key(key))
                for i, key in enumerate(keys)
            ),
        )
        self.folders = [root / f"party-{i}" for i in range(self.count)]
        self.keys = keys
        for i, folder in enumerate(self.folders):
            folder.mkdir(mode=0o700)
            identity = folder / "identity.key"
            identity.write_text(keys[i].hex())
            identity.chmod(0o600)
            (folder / "deployment.toml").write_text(render_deployment(self.deployment))
            intercept = not any(kind in text for text in overrides for kind in NETWORKS)
            rows, labels = rows_of(i, sizes[i], intercept=intercept)
            np.savez(folder / "rows.npz", features=rows, labels=labels)
        self.consent(policy or {}, **data)
        self.propose(*overrides)
        self.clock, self.uptime_s = NOW, 1000.0
        self.services = [self.open(i) for i in range(self.count)]
        self.session = self.server = None
        self.drawn = []

    def consent(self, policy, party=None, **data):
        """Writes party.toml, of all parties or of one."""
        given = {
            "lock-wait-s": 0.2,
            "colluders-at-least": 0,  # three parties, of which one may be lost
            **policy,
            "data": {"ward": {"prepared": "rows.npz", "epsilon": 50.0, "delta": 1e-5, **data}},
        }
        text = format_policy(OwnerPolicy.model_validate(given))
        for folder in self.folders if party is None else [self.folders[party]]:
            (folder / "party.toml").write_text(text)

    def propose(self, *overrides):
        """A job's algorithm and plan."""
        job = load_job(
            overrides=[
                f"parties.count={self.count}",
                "run.seed=none",
                "secure-aggregation.min-survivors=2",
                "secure-aggregation.corrupt=0",
                "algorithm.rounds=3",
                "privacy.epsilon=3",
                # Contributions are compared: shares of noise would make each of them new.
                "privacy.noise-point=server",
                *overrides,
            ]
        )
        least = job.parties.min_records
        self.federation = (
            Federation.from_sizes(np.array(self.sizes))
            if least == "auto"
            else Federation(
                parties=self.count,
                min_records=least,
                total_records=least * self.count,
                max_records=least,
            )
        )
        self.network = job.algorithm.kind in NETWORKS
        if self.network:
            from parley.client.models.networks import Network

            model = Network.build("mlp", features=FEATURES, classes=2, hidden=(3,))
        else:
            model = build_model(job, features=FEATURES, classes=0)
        self.algorithm = build_algorithm(job, model, self.federation)
        self.plan = plan_release(
            job, algorithm=self.algorithm, federation=self.federation, run_id=self.run
        )
        self.rounds = job.rounds
        self.job = job

    def open(self, party):
        """A service on a party's folder, whose entropy is recorded."""

        def entropy(count):
            self.drawn.append(os.urandom(count))
            return self.drawn[-1]

        return PartyService.open(
            self.folders[party],
            entropy=entropy,
            clock=lambda: self.clock,
            uptime=lambda: Uptime(boot="a", seconds=self.uptime_s),
        )

    def encoded(self, parts=None, *, plan=None, state=None):
        """`[m, d]` what parties of rows and labels contribute: no server should have it."""
        parts = parts or [rows_of(i, size) for i, size in enumerate(self.sizes)]
        block = PartyBlock(
            features=np.concatenate([rows for rows, _ in parts]),
            labels=np.concatenate([labels for _, labels in parts]),
            offsets=np.cumsum([0] + [len(labels) for _, labels in parts]),
        )
        session = PartySession(
            block=block,
            algorithm=self.algorithm,
            rules=RefusalRules(units=frozenset({Unit.RECORD})),
            randomness=Randomness.from_entropy(),
        )
        return session.answer(
            plan or self.plan.with_round(1), state or self.algorithm.init()
        ).encoded

    def plain_sum(self, parts=None, *, number=1, state=None):
        """What they add up to, without any protocol."""
        encoded = self.encoded(parts, plan=self.plan.with_round(number), state=state)
        return encoded.sum(axis=0, dtype=encoded.dtype)

    def raw(self, party, request: bytes) -> MessageFrame:
        """The answer to any bytes."""
        if self.reopen:
            self.services[party].close()
            self.services[party] = self.open(party)
        return decode_frame(self.services[party].handle(request))

    def ask(self, party, kind, blobs=(), **head) -> MessageFrame:
        """The answer to a request."""
        head = {"version": WIRE_VERSION, **head}
        if kind in ("join", "propose") and not blobs:
            blobs = [b""]  # rows are not projected
        return self.raw(party, encode_frame(MessageFrame(kind=kind, head=head, blobs=tuple(blobs))))

    def inspection(self):
        """The head of the question what a run would learn from."""
        head = {"version": WIRE_VERSION, "run": self.run, "dataset": "ward", "label": "logistic"}
        head |= {"intercept": not self.network, "features": {}, "blocks": [], "clock": NOW}
        return head | {"sizes": True}

    def inspect(self, party=0, **changes):
        """The answer to it."""
        return self.ask(party, "inspect", **self.inspection() | changes)

    def parameters(self, session="0a" * 16, **changes):
        """Secure aggregation of a session."""
        given = {"parties": self.count, "min_survivors": 2, "rounds": 12}
        given |= {"corrupt": 0, "ring_bits": self.plan.encoding.ring_bits}
        given |= {"dropped": self.count > 3, "run_id": bytes.fromhex(session)} | changes
        return RunParameters.choose(**given)

    def join_head(self, session="0a" * 16, **changes):
        """The head of a join request."""
        return {
            "run": self.run,
            "session": session,
            "parameters": self.parameters(session).to_bytes().hex(),
            "dataset": "ward",
            "label": "logistic",
            "intercept": not self.network,
            "schema": self.schema,
            "features": {},
            "task": describe_task(self.algorithm),
            "plan": self.plan.to_json(),
            "rounds": self.rounds,
        } | changes

    @property
    def schema(self):
        """Digest of prepared rows' facts."""
        facts = f"prepared: {FEATURES} features, 0 classes"
        return hashlib.sha256(facts.encode()).hexdigest()

    def protocol_server(self, run):
        """The protocol's server of this deployment."""
        deployment = self.deployment
        return MaskingServer(
            run=run, identities=deployment.identities, deployment=bytes.fromhex(deployment.id)
        )

    def join(self, session="0a" * 16, **changes):
        """All parties join; the first round is prepared."""
        self.session = session
        run = self.parameters(session)
        self.server = self.protocol_server(run)
        for i in range(self.count):
            reply = ok(self.ask(i, "join", **self.join_head(session, **changes)))
            self.server.handle_advertise(reply.blobs[0])
        rosters = self.server.build_rosters()
        self.agree(rosters[0], session, **changes)
        for i, roster in rosters.items():
            reply = ok(self.ask(i, "roster", [roster, b""], session=session, prepare=1))
            self.server.handle_encapsulated(reply.blobs[0])
            self.server.handle_shares(reply.blobs[1])

    def agree(self, roster, session="0a" * 16, **changes):
        """What the parties agreed to with a join request and a roster."""
        head = json.loads(json.dumps(self.join_head(session, **changes)))
        agreed = Agreement.from_head(head, components=b"", identities=self.deployment.identities)
        present = decode(agreed.parameters, roster, Roster).present
        self.agreement = replace(agreed, present=present)

    def agreement_of(self, *blocks):
        """What one would agree to on some blocks of the records."""
        plan = replace(self.plan, blocks=blocks).to_json()
        head = json.loads(json.dumps(self.join_head(plan=plan)))
        return Agreement.from_head(head, components=b"", identities=self.deployment.identities)

    def state(self, theta=None):
        """A model as it travels."""
        if theta is None:
            theta = self.algorithm.init()["theta"]
        return save({"theta": theta})

    def round_requests(self, serial, number=1, *, state=None, plan=None, prepare=None):
        """The round's request for each party."""
        prepare = serial + 1 if prepare is None else prepare
        plan = (plan or self.plan).with_round(number)
        state = state or self.state()
        agreed = replace(self.agreement, plan=plan, serial=serial, state=state)
        plans = self.server.plan(serial, dimension=plan.dimension, context=agreed.compute_binding())
        head = {"session": self.session, "plan": plan.to_json(), "prepare": prepare}
        return {
            i: MessageFrame(
                kind="round",
                head={"version": WIRE_VERSION, **head},
                blobs=(bytes(message), state, self.server.get_ciphertexts(i)),
            )
            for i, message in plans.items()
        }

    def vectors(self, serial, number=1, **options):
        """Sends a round's requests and takes the vectors that come: answers by party."""
        prepare = options.setdefault("prepare", serial + 1)
        answers = {}
        for i, request in self.round_requests(serial, number, **options).items():
            answers[i] = self.raw(i, encode_frame(request))
            if answers[i].head["status"] == "ok":
                self.server.handle_vector(answers[i].blobs[0])
                self.server.handle_shares(answers[i].blobs[1], number=prepare)
        return answers

    def prepare(self, serial):
        """Every party's shares of a round, asked for on their own."""
        for i in range(self.count):
            given = [self.server.get_ciphertexts(i)]
            reply = ok(self.ask(i, "prepare", given, session=self.session, prepare=serial))
            self.server.handle_shares(reply.blobs[0], number=serial)

    def opened(self):
        """The rest of a round: confirmed, revealed, summed."""
        listed = self.server.close()
        for i in self.server.survivors:
            reply = ok(self.ask(i, "survivors", [listed], session=self.session))
            self.server.handle_confirm(reply.blobs[0])
        for i, message in self.server.build_confirmations().items():
            reply = ok(self.ask(i, "confirmations", [message], session=self.session))
            self.server.handle_reveal(reply.blobs[0])
        return self.server.finish()

    def files(self, party):
        """Everything in a party's folder: name to bytes."""
        return {
            str(path.relative_to(self.folders[party])): path.read_bytes()
            for path in self.folders[party].rglob("*")
            if path.is_file()
        }


def ok(frame):
    """The answer, if it is ok."""
    assert frame.kind == "answer"
    assert frame.head["status"] == "ok", json.dumps(dict(frame.head))
    return frame


def reason(frame):
    """Why an answer is not ok; that it says nothing else."""
    assert set(frame.head) == {"version", "status", "reason"}
    assert frame.head["status"] == "refused"
    assert frame.blobs == ()
    return frame.head["reason"]


@pytest.fixture(scope="session")
def wired():
    """The functions above, so that test modules need no import of this file."""
    return SimpleNamespace(World=World, ok=ok, reason=reason, rows_of=rows_of, SIZES=SIZES, NOW=NOW)
