//! Kinds of rows that do not parse.

/// A kind of row that does not parse.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Makes the row. `PATH` is a dead path with references, `LEAF` a live one without; `P` and `L`
    /// are the numbers of their rows. `HASH` is a hash part that no path has.
    pub(super) sql: &'static str,
    pub(super) class: Class,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The row describes no path, and names none that has files.
    Meaningless,
    /// The row describes no path, and names `PATH`.
    NamesPath,
    /// The row belongs to `PATH`, of which no information can be read.
    Unreadable,
    /// The outputs of `PATH`, which are not part of its information.
    Outputs,
    /// The row of `PATH` has no size.
    NoSize,
}

const fn kind(name: &'static str, class: Class, sql: &'static str) -> Kind {
    Kind { name, sql, class }
}

use Class::{Meaningless, NamesPath, NoSize, Outputs, Unreadable};

pub(super) const KINDS: &[Kind] = &[
    kind(
        "other store",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/foo/nix/store/x', 'sha256:00', 1)",
    ),
    kind(
        "empty path",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('', 'sha256:00', 1)",
    ),
    kind(
        "store directory",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store', 'sha256:00', 1)",
    ),
    kind(
        "empty name",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/HASH-', 'sha256:00', 1)",
    ),
    kind(
        "only a hash part",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/HASH', 'sha256:00', 1)",
    ),
    kind(
        "33 characters",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/0HASH-x', 'sha256:00', 1)",
    ),
    kind(
        "upper case",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/' || upper('HASH') || '-x', 'sha256:00', 1)",
    ),
    kind(
        "forbidden digit",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/' || substr('HASH', 2) || 'e-x', 'sha256:00', 1)",
    ),
    kind(
        "space in name",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/HASH-a b', 'sha256:00', 1)",
    ),
    kind(
        "line feed in name",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/HASH-a' || char(10) || 'b', 'sha256:00', 1)",
    ),
    kind(
        "long name",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('/nix/store/HASH-' || hex(zeroblob(200)), 'sha256:00', 1)",
    ),
    kind(
        "relative path",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('HASH-x', 'sha256:00', 1)",
    ),
    kind(
        "not UTF-8",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values(cast(x'2f6e69782f73746f72652fff' as text), 'sha256:00', 1)",
    ),
    kind(
        "blob as path",
        Meaningless,
        "insert into ValidPaths(path, hash, registrationTime) \
        values(cast('/nix/store/HASH-x' as blob), 'sha256:00', 1)",
    ),
    kind(
        "zero byte",
        NamesPath,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('PATH' || char(0) || 'b', 'sha256:00', 1)",
    ),
    kind(
        "slash at the end",
        NamesPath,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('PATH/', 'sha256:00', 1)",
    ),
    kind(
        "file in a path",
        NamesPath,
        "insert into ValidPaths(path, hash, registrationTime) \
        values('PATH/bin', 'sha256:00', 1)",
    ),
    kind(
        "blob of a path",
        NamesPath,
        "insert into ValidPaths(path, hash, registrationTime) \
        values(cast('PATH' as blob), 'sha256:00', 1)",
    ),
    kind(
        "damaged referrer",
        NamesPath,
        "insert into ValidPaths(id, path, hash, registrationTime) \
        values(77, 'x', 'sha256:00', 1); insert into Refs values(77, P)",
    ),
    kind(
        "damaged deriver",
        NamesPath,
        "insert into ValidPaths(path, hash, registrationTime, \
        deriver) values('x', 'sha256:00', 1, 'PATH')",
    ),
    kind(
        "damaged outputs",
        NamesPath,
        "insert into ValidPaths(id, path, hash, registrationTime) \
        values(77, 'x', 'sha256:00', 1); insert into DerivationOutputs values(77, 'out', 'PATH')",
    ),
    kind(
        "missing referrer",
        NamesPath,
        "insert into Refs values(77, P)",
    ),
    kind(
        "text as referrer",
        NamesPath,
        "insert into Refs values('x', P)",
    ),
    kind(
        "missing derivation",
        Meaningless,
        "insert into DerivationOutputs values(77, 'out', \
        'LEAF')",
    ),
    kind(
        "short hash",
        Unreadable,
        "update ValidPaths set hash = 'sha256:00' where id = P",
    ),
    kind(
        "blob as hash",
        Unreadable,
        "update ValidPaths set hash = x'00' where id = P",
    ),
    kind(
        "text as time",
        Unreadable,
        "update ValidPaths set registrationTime = 'x' where id = P",
    ),
    kind(
        "bad deriver",
        Unreadable,
        "update ValidPaths set deriver = 'x' where id = P",
    ),
    kind(
        "blob as deriver",
        Unreadable,
        "update ValidPaths set deriver = x'00' where id = P",
    ),
    kind(
        "text as size",
        Unreadable,
        "update ValidPaths set narSize = 'x' where id = P",
    ),
    kind(
        "negative size",
        Unreadable,
        "update ValidPaths set narSize = -1 where id = P",
    ),
    kind(
        "fraction as size",
        Unreadable,
        "update ValidPaths set narSize = 1.5 where id = P",
    ),
    kind(
        "text as ultimate",
        Unreadable,
        "update ValidPaths set ultimate = 'x' where id = P",
    ),
    kind(
        "bad signature",
        Unreadable,
        "update ValidPaths set sigs = 'x' where id = P",
    ),
    kind(
        "blob as signature",
        Unreadable,
        "update ValidPaths set sigs = x'00' where id = P",
    ),
    kind(
        "bad address",
        Unreadable,
        "update ValidPaths set ca = 'x' where id = P",
    ),
    kind(
        "missing reference",
        Unreadable,
        "insert into Refs values(P, 77)",
    ),
    kind(
        "text as reference",
        Unreadable,
        "insert into Refs values(P, 'x')",
    ),
    kind(
        "damaged reference",
        Unreadable,
        "insert into ValidPaths(id, path, hash, \
        registrationTime) values(77, 'x', 'sha256:00', 1); insert into Refs values(P, 77)",
    ),
    kind(
        "bad output",
        Outputs,
        "insert into DerivationOutputs values(P, 'out', 'x')",
    ),
    kind(
        "output without a name",
        Outputs,
        "insert into DerivationOutputs values(P, '', 'LEAF')",
    ),
    kind(
        "no size",
        NoSize,
        "update ValidPaths set narSize = null where id = P",
    ),
    kind(
        "size of zero",
        NoSize,
        "update ValidPaths set narSize = 0 where id = P",
    ),
];

/// Kinds of rows because of which a live path has lost its reference `LEAF`. They have no class.
pub(super) const LOST_REFERENCES: &[Kind] = &[
    kind(
        "lost row",
        Unreadable,
        "delete from ValidPaths where path = 'LEAF'",
    ),
    kind(
        "wrong reference",
        Unreadable,
        "update Refs set reference = 9999 where \
        reference = (select id from ValidPaths where path = 'LEAF')",
    ),
    kind(
        "text for a reference",
        Unreadable,
        "update Refs set reference = 'x' where \
        reference = (select id from ValidPaths where path = 'LEAF')",
    ),
    kind(
        "lost path",
        Unreadable,
        "update ValidPaths set path = 'x' where path = 'LEAF'",
    ),
    kind(
        "damaged hash part",
        Unreadable,
        "update ValidPaths set path = '/nix/store/' || substr('HASH', 2) || 'e-x' \
        where path = 'LEAF'",
    ),
];

/// Kinds of rows whose paths do not parse, and that have the hash part of `LEAF`.
pub(super) const DAMAGED_NAMES: &[Kind] = &[
    kind(
        "line feed at the end",
        Meaningless,
        "update ValidPaths set path = path || char(10) \
        where path = 'LEAF'",
    ),
    kind(
        "other name",
        Meaningless,
        "update ValidPaths set path = substr(path, 1, 45) || ' ' \
        where path = 'LEAF'",
    ),
];
