//! The checked input of the expansion. Only the compiler can find mistakes in it.

use std::time::Duration;

use proc_macro2::{Ident, Span};
use syn::{Expr, ExprPath, LitStr, Path, Type};

/// One attribute, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) keys: Keys,
    pub(crate) kind: LockKindArg,
    /// An expression that is `Into<SystemTime>`: the fire for which the function runs once.
    pub(crate) once: Option<Expr>,
    pub(crate) wait: Option<Wait>,
    pub(crate) lease: Option<TimeArg>,
    pub(crate) renew: Option<RenewArg>,
    pub(crate) max_hold: Option<TimeArg>,
    pub(crate) min_hold: Option<TimeArg>,
    pub(crate) replica_ack: Option<ReplicaAckArg>,
    pub(crate) fsync: Option<FsyncArg>,
    pub(crate) client: Option<Expr>,
    pub(crate) owner: Option<Expr>,
    pub(crate) on_timeout: Fallback,
    pub(crate) on_unavailable: Fallback,
    pub(crate) on_lost: OnLostArg,
    pub(crate) map_err: Option<Expr>,
    /// An expression of type `bool`. If it is false, the body runs without a lock.
    pub(crate) when: Option<Expr>,
    /// The name of the guard in the body; no parameter has this name.
    pub(crate) guard: Option<Ident>,
    /// The name of the fencing token in the body; neither the guard nor a parameter has this name.
    pub(crate) token: Option<Ident>,
    pub(crate) name: Option<LitStr>,
    pub(crate) krate: Option<Path>,
    /// The output type of the function, or of the future that it returns.
    pub(crate) returns: Type,
}

/// The key or the keys.
#[derive(Debug)]
pub(crate) enum Keys {
    One(LockedKey),
    /// At least one, and where the list was written.
    Each(Vec<LockedKey>, Span),
    /// Something that iterates over strings.
    List(Expr),
}

#[derive(Debug)]
pub(crate) struct LockedKey {
    pub(crate) what: KeyWhat,
    /// Where the key was written. The compiler reports mistakes of a placeholder there.
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum KeyWhat {
    Template {
        parts: Vec<KeyPart>,
        /// The text of the compiler's warning.
        warning: Option<String>,
    },
    /// An expression for a string.
    Expr(Expr),
}

/// A `TemplateSegment` of a template whose names are identifiers.
#[derive(Debug)]
pub(crate) enum KeyPart {
    Text(String),
    Value {
        placeholder: String,
        root: Ident,
        accesses: Vec<AccessStep>,
        spec: String,
    },
}

/// An `Access` whose name is an identifier.
#[derive(Debug)]
pub(crate) enum AccessStep {
    Field(Ident),
    Index(u32),
    Method(Ident),
}

/// How long to wait for the lock.
#[derive(Debug)]
pub(crate) enum Wait {
    Literal(Duration),
    Forever,
    /// An expression of type `Duration`.
    Expr(Expr),
}

/// A duration that is not zero.
#[derive(Debug)]
pub(crate) enum TimeArg {
    Literal(Duration),
    /// An expression of type `Duration`.
    Expr(Expr),
}

/// Whether and how often the lease is renewed.
#[derive(Debug)]
pub(crate) enum RenewArg {
    Bool(bool),
    /// Not zero.
    Every(Duration),
    /// An expression of a type that is `Into<Renew>`.
    Expr(Expr),
}

/// How many replicas must have the lock.
#[derive(Debug)]
pub(crate) enum ReplicaAckArg {
    None,
    /// Not zero.
    AtLeast(u32),
    Majority,
    All,
    /// An expression of type `ReplicaAck`.
    Expr(Expr),
}

/// Which servers must have the lock on disk.
#[derive(Debug)]
pub(crate) enum FsyncArg {
    None,
    Replicas,
    All,
    /// An expression of type `Fsync`.
    Expr(Expr),
}

/// The kind of lock.
#[derive(Debug, Default)]
#[allow(clippy::large_enum_variant)] // There is one of it in a plan.
pub(crate) enum LockKindArg {
    #[default]
    Reentrant,
    Fair,
    Read,
    Write,
    Fenced,
    Spin,
    /// Both of type `u32`; the default is one permit.
    Semaphore {
        limit: Expr,
        take: Option<Expr>,
    },
}

/// What the function does if its lock is not acquired.
#[derive(Debug, Default)]
pub(crate) enum Fallback {
    /// Returns the error.
    #[default]
    Error,
    /// Returns `Ok(Default::default())`. The place of the word.
    Skip(Span),
    /// Returns `Ok(None)`: another caller runs the job, or has done it.
    NotRun,
    /// Returns this value, of the declared type.
    Value(Expr),
    /// Returns the output of this async function, called with the same parameters; each of them has
    /// a name.
    Call(ExprPath),
}

/// What happens to the body if the lock is lost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLostArg {
    /// It is dropped.
    #[default]
    Cancel,
    /// It runs to its end and keeps its value.
    Finish,
    /// It runs to its end, then the loss is returned instead of the value.
    ErrorAfter,
}
