//! What the parts of the planner share: the statement's slots, what is wanted of rows, and how rows come.

use super::node::{Node, SortKey};
use crate::expr::{Expr, Slot};
use txn::TableHandle;

/// Expressions nested deeper than this are run on a stack of their own.
pub(crate) const DEEP: usize = 100;

/// Estimates the rows of a table.
pub(crate) type Rows<'a> = dyn Fn(&TableHandle) -> u64 + 'a;

/// The state of planning one statement.
pub(crate) struct Planner<'a> {
    /// A name per slot.
    pub names: Vec<String>,
    /// Which slots something reads.
    pub used: Vec<bool>,
    /// How deep the statement's deepest expression nests.
    pub deepest: usize,
    pub rows: Option<&'a Rows<'a>>,
}

impl Planner<'_> {
    /// Hoists what is constant during an execution out of an expression that runs per row.
    pub fn hoist(&mut self, e: &mut Expr) {
        let names = &mut self.names;
        let used = &mut self.used;
        crate::expr::fold::hoist(e, &mut || {
            names.push(String::new());
            used.push(true);
            (names.len() - 1) as Slot
        });
    }
}

/// What is wanted of a relation's rows beside that they are right.
#[derive(Clone, Default)]
pub(crate) struct Want {
    pub order: Vec<SortKey>,
    /// Rows that will be asked for, when known.
    pub limit: Option<usize>,
    /// Whether there is a limit, known or not.
    pub some_limit: bool,
    /// LIMIT and OFFSET, where a sort may keep no more rows than these.
    pub top: Option<(Option<Expr>, Option<Expr>)>,
}

/// A planned relation.
pub(crate) struct Planned {
    pub node: Node,
    /// Whether the rows come in the wanted order.
    pub ordered: bool,
    pub rows: f64,
}
