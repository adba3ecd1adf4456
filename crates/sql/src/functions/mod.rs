//! The functions, operators and aggregates of SQL, and how a call finds its one.
//!
//! [`registry`] is the table of all of them (PostgreSQL's `pg_proc` and `pg_operator` for the types we have), [`resolve`]
//! picks from it by PostgreSQL's rules. The answer is a [`Resolved`]: the types that the arguments are to be cast to
//! first, the type of the result, and a plain function pointer. A call allocates nothing of its own.
//!
//! NULL: the executor may skip a `strict` function when an argument is NULL; [`Resolved::call`] does.
//!
//! Left out on purpose: user-defined functions.

mod advisory;
pub mod aggregate;
mod aggregate_collect;
mod aggregate_stats;
mod array;
mod bits;
mod bytes;
pub mod catalog;
mod citext;
pub(crate) mod composite;
pub mod context;
mod crypto;
pub mod datetime;
mod degrees;
pub mod effect;
mod enums;
mod extract;
pub mod format;
mod from_char;
mod json_assign;
mod json_records;
mod json_text;
pub mod jsonb;
mod math;
mod network;
mod operators;
mod ordered_set;
mod overlaps;
mod pattern;
pub mod registry;
mod replication;
pub mod resolve;
mod sets;
pub mod signature;
mod spelled;
pub mod string;
pub mod system;
#[cfg(test)]
pub(crate) mod testing;
mod timetz;
mod to_char;
mod to_number;
mod tools;
mod uuids;
#[cfg(test)]
mod walk;
mod window;

pub use context::{EvalContext, NoSession, SessionContext};
pub use ordered_set::ORDERED_SETS;
pub use registry::is_lookup;
pub use resolve::{
    lookup_any_operator, lookup_function, lookup_operator, no_function, select_common_type,
};
pub use window::WindowFn;

use crate::types::{OutputSettings, cast};
use base::{ColumnType, Result, Type, Value};

/// The function behind IDENTITY columns: `nextval` without a right on the sequence. No text of a user's can call it.
pub const NEXT_IDENTITY: &str = "nextval of an identity column";
/// The function behind `SET a[1] = 2`. No text of a user's can call it.
pub const SET_ELEMENT: &str = "assignment to an element of an array";
/// The same of `SET j['a'] = '2'`.
pub const SET_MEMBER: &str = "assignment to a part of jsonb";

/// Whether a result may change between calls with the same arguments: never, not within a statement, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    Immutable,
    Stable,
    Volatile,
}

/// A function of values only.
pub type ScalarFn = fn(&[Value], &mut EvalContext<'_>) -> Result<Value>;
/// A function that must know the types of its arguments, because the values alone do not tell (`to_jsonb`, `format`).
pub type TypedFn = fn(&[Value], &[Type], &mut EvalContext<'_>) -> Result<Value>;
/// A function that returns rows.
pub type RowsFn = fn(&[Value], &[Type], &mut EvalContext<'_>) -> Result<Box<dyn RowSource>>;
/// Makes the state of an aggregate for these argument types.
pub type AccumulatorFn = fn(&[Type], &OutputSettings) -> Box<dyn Accumulator>;

/// What stands behind a name.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Scalar(ScalarFn),
    Typed(TypedFn),
    /// The same, called with VARIADIC: the items of the last argument, an array, stand for it. A NULL in its place gives NULL.
    Spread(TypedFn),
    /// A function-style cast: `int4('1')`.
    Cast,
    Aggregate(AggregateId),
    SetReturning(RowsFn),
    /// Called with OVER alone.
    Window(WindowFn),
}

/// An aggregate: a name for plans to print, and its state.
#[derive(Clone, Copy, Debug)]
pub struct AggregateId {
    pub name: &'static str,
    pub new: AccumulatorFn,
}

impl AggregateId {
    /// A fresh state. `args` are the resolved argument types.
    pub fn accumulator(&self, args: &[Type], settings: &OutputSettings) -> Box<dyn Accumulator> {
        (self.new)(args, settings)
    }
}

/// The running state of an aggregate over one group. NULL arguments are given too: each aggregate knows whether it
/// skips them. `count(*)` has no arguments.
pub trait Accumulator: Send + Fork {
    fn add(&mut self, args: &[Value]) -> Result<()>;
    /// Whether it keeps what it is given.
    fn keeps(&self) -> bool {
        false
    }
    fn finish(self: Box<Self>) -> Result<Value>;
}

/// A state that goes on in two ways: a window asks for the answer so far.
pub trait Fork {
    fn fork(&self) -> Box<dyn Accumulator>;
}

impl<T: Accumulator + Clone + 'static> Fork for T {
    fn fork(&self) -> Box<dyn Accumulator> {
        Box::new(self.clone())
    }
}

/// The rows of a set-returning function, one after another.
pub trait RowSource: Send {
    /// Puts the next row's columns in `out` (cleared by the callee); false at the end.
    fn next(&mut self, out: &mut Vec<Value>) -> Result<bool>;
}

/// A call that found its function.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub name: &'static str,
    /// The types to cast the arguments to, one per argument of the call.
    pub args: Vec<Type>,
    pub ret: Type,
    /// Whether the function returns NULL for a NULL argument without being called.
    pub strict: bool,
    pub volatility: Volatility,
    pub kind: Kind,
    /// Columns of a set-returning function that returns records; empty for one that returns plain values.
    pub columns: &'static [(&'static str, Type)],
}

impl Resolved {
    /// Calls a scalar function with arguments of the types in `args`. Panics for aggregates and set-returning ones.
    pub fn call(&self, args: &[Value], ctx: &mut EvalContext<'_>) -> Result<Value> {
        if self.strict && args.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        match self.kind {
            Kind::Scalar(f) => f(args, ctx),
            Kind::Typed(f) => f(args, &self.args, ctx),
            Kind::Spread(f) => {
                let (last, first) = args.split_last().expect("an array");
                let items = match last {
                    Value::Array(a) => &a.items[..],
                    _ if self.name == "format" => &[],
                    _ => return Ok(Value::Null),
                };
                let args: Vec<Value> = first.iter().chain(items).cloned().collect();
                if self.strict && args.iter().any(Value::is_null) {
                    return Ok(Value::Null);
                }
                let mut types = self.args[..first.len()].to_vec();
                let element = self.args[first.len()].element().unwrap_or(Type::Text);
                types.resize(args.len(), element);
                f(&args, &types, ctx)
            }
            Kind::Cast => cast::apply(
                args[0].clone(),
                ColumnType::plain(self.args[0]),
                ColumnType::plain(self.ret),
                true,
                ctx.settings,
            ),
            Kind::Aggregate(_) | Kind::SetReturning(_) | Kind::Window(_) => {
                panic!("{} is not a scalar function", self.name)
            }
        }
    }

    /// Starts a set-returning function. Panics for other kinds.
    pub fn rows(&self, args: &[Value], ctx: &mut EvalContext<'_>) -> Result<Box<dyn RowSource>> {
        match self.kind {
            Kind::SetReturning(_) if self.strict && args.iter().any(Value::is_null) => {
                Ok(Box::new(NoRows))
            }
            Kind::SetReturning(f) => f(args, &self.args, ctx),
            _ => panic!("{} returns no set", self.name),
        }
    }

    /// Whether a call may be replaced by its result at plan time.
    pub fn foldable(&self) -> bool {
        self.volatility == Volatility::Immutable
            && matches!(
                self.kind,
                Kind::Scalar(_) | Kind::Typed(_) | Kind::Spread(_)
            )
    }
}

struct NoRows;

impl RowSource for NoRows {
    fn next(&mut self, out: &mut Vec<Value>) -> Result<bool> {
        out.clear();
        Ok(false)
    }
}
