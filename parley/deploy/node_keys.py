"""The keys that Flower knows a party by: ECDSA P-384 in OpenSSH's form, one of each SuperNode."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from parley.deploy.private_files import PkiError, write_private


def make_node_key(path: Path, *, comment: str) -> str:
    """Makes a SuperNode's key, `path` and `path.pub`, and returns the public line."""
    private = ec.generate_private_key(ec.SECP384R1())
    write_private(
        path,
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        ),
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{public.decode()} {comment}"
    path.with_suffix(".pub").write_text(line + "\n", encoding="utf-8")
    return line


def check_node_key(line: str) -> None:
    """Raises PkiError unless it is an OpenSSH line with a P-384 public key."""
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PkiError("Expected an OpenSSH public key, got something else.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise PkiError(f"Expected an OpenSSH public key on P-384, got {type(key).__name__}.")


def node_key(line: str) -> bytes:
    """A party's OpenSSH public key as Flower writes it: PEM, with its last line's end."""
    return _public(line).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def node_line(path: Path) -> str:
    """The OpenSSH public key, without a comment, of the SuperNode's private key at `path`.

    Raises:
        PkiError: it is no private key on an elliptic curve.
    """
    public = _private(path).public_key()
    return public.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    ).decode()


def signed_by_node(path: Path, message: bytes) -> bytes:
    """The ECDSA signature of a message with SHA-256, by the SuperNode's private key at `path`.

    Raises:
        PkiError: it is no private key on an elliptic curve.
    """
    return _private(path).sign(message, ec.ECDSA(hashes.SHA256()))


def signs_as_node(line: str, signature: bytes, message: bytes) -> bool:
    """Whether `signature` is that of `message` by a party's OpenSSH public key."""
    try:
        _public(line).verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _public(line: str) -> ec.EllipticCurvePublicKey:
    key = serialization.load_ssh_public_key(line.encode())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise TypeError(f"Expected an elliptic-curve key, got {type(key).__name__}.")
    return key


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected a private key in {path}, got something else.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"Expected an elliptic-curve key in {path}.")
    return key
