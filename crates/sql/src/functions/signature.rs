//! One entry of the table of functions: a name, the types it takes and gives, and the code.
//!
//! Polymorphic arguments stand for a type that the call fixes: all `AnyElement`s of a call are one type, `AnyArray` is the
//! array over it; `AnyCompatible` and `AnyCompatibleArray` are a second family whose members are first cast to a common
//! type; `Any` takes each argument as it is.

use super::effect::Effect;
use super::{Kind, Volatility};
use base::Type;

/// A declared argument or result type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sig {
    Is(Type),
    AnyElement,
    AnyArray,
    AnyNonArray,
    AnyEnum,
    AnyCompatible,
    AnyCompatibleArray,
    AnyCompatibleNonArray,
    Any,
}

impl Sig {
    /// Whether the call decides the type.
    pub fn is_polymorphic(self) -> bool {
        !matches!(self, Sig::Is(_) | Sig::Any)
    }
}

/// One function, operator or aggregate.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: &'static str,
    pub args: Vec<Sig>,
    /// Whether the last argument may be repeated.
    pub variadic: bool,
    pub ret: Sig,
    pub strict: bool,
    pub volatility: Volatility,
    pub kind: Kind,
    pub columns: &'static [(&'static str, Type)],
    /// What it does beside its answer; alike for all functions of a name.
    pub effect: Effect,
}

impl Entry {
    /// The declared type of argument `i` of a call, variadic ones repeated.
    pub fn arg(&self, i: usize) -> Sig {
        self.args[i.min(self.args.len() - 1)]
    }

    /// Whether a call with `n` arguments fits.
    pub fn accepts(&self, n: usize) -> bool {
        if self.variadic {
            n >= self.args.len()
        } else {
            n == self.args.len()
        }
    }
}
