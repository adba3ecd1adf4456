//! Where a recursive query may name itself: once, in its second part, and not where its rows so far would have to be known as a whole or be
//! found missing (42P19).

use super::Binder;
use crate::logical::From;
use base::{Error, Result, SqlState};

/// The recursive query whose second part is being bound.
#[derive(Default)]
pub(crate) struct Recursion {
    name: String,
    /// How often it has been named.
    named: usize,
    /// How many subqueries of expressions stand around.
    subqueries: usize,
}

fn misplaced(what: String) -> Error {
    Error::new(SqlState::INVALID_RECURSION, what)
}

impl Binder<'_> {
    /// Binds the second part of a recursive query.
    pub(super) fn in_recursion<R>(
        &mut self,
        name: &str,
        f: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let inner = Recursion {
            name: name.to_owned(),
            ..Recursion::default()
        };
        let outer = std::mem::replace(&mut self.recursion, inner);
        let r = f(self);
        self.recursion = outer;
        r
    }

    /// Binds a subquery of an expression.
    pub(super) fn in_subquery<R>(&mut self, f: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.recursion.subqueries += 1;
        let r = f(self);
        self.recursion.subqueries -= 1;
        r
    }

    /// The query names itself here.
    pub(super) fn recurs(&mut self, name: &str) -> Result<()> {
        if self.recursion.name != name {
            return Ok(());
        }
        self.recursion.named += 1;
        let place = match (self.recursion.subqueries, self.recursion.named) {
            (0, 1) => return Ok(()),
            (0, _) => "appear more than once",
            _ => "appear within a subquery",
        };
        let what = format!("recursive reference to query \"{name}\" must not {place}");
        Err(misplaced(what))
    }

    /// How often the query has named itself so far.
    pub(super) fn recursions(&self) -> usize {
        self.recursion.named
    }

    /// Refuses that it has named itself since there were so many.
    pub(super) fn no_recursion_since(&self, before: usize, within: &str) -> Result<()> {
        let Recursion { name, named, .. } = &self.recursion;
        if *named == before {
            return Ok(());
        }
        Err(misplaced(format!(
            "recursive reference to query \"{name}\" must not appear within {within}"
        )))
    }

    /// Refuses aggregates over the rows of the query itself.
    pub(super) fn no_aggregates_over(&self, items: &[From]) -> Result<()> {
        match items.iter().any(names_itself) {
            true => Err(misplaced(
                "aggregate functions are not allowed in a recursive query's recursive term".into(),
            )),
            false => Ok(()),
        }
    }
}

fn names_itself(f: &From) -> bool {
    match f {
        From::Cte { work, .. } => *work,
        From::Inner { items, .. } => items.iter().any(names_itself),
        From::Left { left, right, .. } | From::Full { left, right, .. } => {
            names_itself(left) || names_itself(right)
        }
        _ => false,
    }
}
