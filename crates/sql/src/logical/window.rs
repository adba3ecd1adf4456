//! Calls of window functions, and the frames that they look at.

use super::SortKey;
use crate::expr::{Expr, Slot};
use crate::functions::{AggregateId, WindowFn};
use base::Type;

/// The rows that belong together, and their order.
#[derive(Clone, Debug)]
pub struct Window {
    pub partition: Vec<Expr>,
    pub order: Vec<SortKey>,
}

impl Window {
    /// Whether two windows sort their rows alike.
    pub fn same(&self, other: &Window) -> bool {
        let key = |a: &SortKey, b: &SortKey| {
            a.expr.same(&b.expr) && a.desc == b.desc && a.nulls_first == b.nulls_first
        };
        self.partition.len() == other.partition.len()
            && self.order.len() == other.order.len()
            && self
                .partition
                .iter()
                .zip(&other.partition)
                .all(|(a, b)| a.same(b))
            && self.order.iter().zip(&other.order).all(|(a, b)| key(a, b))
    }
}

/// What is computed over a window.
#[derive(Clone, Copy, Debug)]
pub enum Over {
    Function(WindowFn),
    Aggregate(AggregateId),
}

/// One call with OVER.
#[derive(Clone, Debug)]
pub struct WindowCall {
    pub slot: Slot,
    /// For plans to print.
    pub name: &'static str,
    pub over: Over,
    pub args: Vec<Expr>,
    pub types: Vec<Type>,
    pub filter: Option<Expr>,
    pub frame: Frame,
}

impl WindowCall {
    /// Every expression of it that is computed for each row.
    pub fn exprs_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        self.args.iter_mut().for_each(&mut *f);
        self.filter.iter_mut().for_each(&mut *f);
        if let Some(r) = &mut self.frame.range {
            f(&mut r.value);
        }
    }

    /// The same to read.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let value = self.frame.range.as_ref().map(|r| &r.value);
        self.args.iter().chain(&self.filter).chain(value)
    }

    /// Whether two calls give the same.
    pub fn same(&self, other: &WindowCall) -> bool {
        self.name == other.name
            && self.types == other.types
            && self.exprs().count() == other.exprs().count()
            && self.exprs().zip(other.exprs()).all(|(a, b)| a.same(b))
            && self.frame.same(&other.frame)
    }
}

/// In what a frame is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Rows,
    /// Values of the one sort key.
    Range,
    /// Groups of peers.
    Groups,
}

/// One end of a frame. An offset reads no column.
#[derive(Clone, Debug)]
pub enum Bound {
    /// From the partition's start, or to its end.
    Unbounded,
    Preceding(Expr),
    Current,
    Following(Expr),
}

impl Bound {
    pub fn offset(&self) -> Option<&Expr> {
        match self {
            Bound::Preceding(e) | Bound::Following(e) => Some(e),
            Bound::Unbounded | Bound::Current => None,
        }
    }

    fn same(&self, other: &Bound) -> bool {
        match (self, other) {
            (Bound::Unbounded, Bound::Unbounded) | (Bound::Current, Bound::Current) => true,
            (Bound::Preceding(a), Bound::Preceding(b))
            | (Bound::Following(a), Bound::Following(b)) => a.same(b),
            _ => false,
        }
    }
}

/// Which rows a frame leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclude {
    #[default]
    NoOthers,
    CurrentRow,
    /// The current row and its peers.
    Group,
    /// The peers, not the current row.
    Ties,
}

/// What a frame counted in values needs: `value` is the sort key in the type that the ends are compared in. With it in the slot `current`
/// and the offset in `offset`, `start` and `end` are the values at the ends.
#[derive(Clone, Debug)]
pub struct Ranged {
    pub value: Expr,
    pub current: Slot,
    pub offset: Slot,
    pub start: Option<Expr>,
    pub end: Option<Expr>,
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub unit: Unit,
    pub start: Bound,
    pub end: Bound,
    pub exclude: Exclude,
    /// Set for a RANGE with offsets.
    pub range: Option<Ranged>,
}

impl Frame {
    /// From the partition's start to the current row's last peer.
    pub fn running() -> Frame {
        Frame {
            unit: Unit::Range,
            start: Bound::Unbounded,
            end: Bound::Current,
            exclude: Exclude::NoOthers,
            range: None,
        }
    }

    fn same(&self, other: &Frame) -> bool {
        self.unit == other.unit
            && self.exclude == other.exclude
            && self.start.same(&other.start)
            && self.end.same(&other.end)
    }
}
