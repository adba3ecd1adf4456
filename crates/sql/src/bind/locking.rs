//! What the locking clauses of a query ask of the relations of its FROM: [`Locking`]. `lock` has what comes of it.
//!
//! Left out on purpose: the binder, so that this can be part of it.

use super::syntax::lock_words;
use crate::expr::{Expr, Slot};
use crate::functions::Volatility;
use crate::logical::{From, Logical};
use base::{Error, Result, SqlState};
use sqlparser::ast::{LockClause, NonBlock};
use txn::{LockMode, WaitPolicy};

/// How the rows of a relation are locked.
#[derive(Clone, Copy)]
pub(crate) struct RowLock {
    pub(super) mode: LockMode,
    pub(super) wait: WaitPolicy,
}

impl RowLock {
    /// One lock that does for both, and waits least.
    fn join(self, other: RowLock) -> RowLock {
        let waits = |w| match w {
            WaitPolicy::Wait => 0,
            WaitPolicy::SkipLocked => 1,
            WaitPolicy::NoWait => 2,
        };
        let wait = match waits(self.wait) >= waits(other.wait) {
            true => self.wait,
            false => other.wait,
        };
        RowLock {
            mode: self.mode.join(other.mode),
            wait,
        }
    }
}

/// A locking clause.
struct Clause {
    lock: RowLock,
    /// The relations that it names, each with whether FROM has it; none: all.
    of: Vec<(String, bool)>,
}

/// The locking clauses of the query whose FROM is being bound.
#[derive(Default)]
pub(crate) struct Locking {
    /// What the query around asks of all its relations.
    above: Option<RowLock>,
    clauses: Vec<Clause>,
}

impl Locking {
    pub(super) fn of(above: Option<RowLock>, clauses: &[LockClause]) -> Locking {
        let clause = |c: &LockClause| {
            let (mode, of) = lock_words(c);
            let wait = match c.nonblock {
                None => WaitPolicy::Wait,
                Some(NonBlock::Nowait) => WaitPolicy::NoWait,
                Some(NonBlock::SkipLocked) => WaitPolicy::SkipLocked,
            };
            Clause {
                lock: RowLock { mode, wait },
                of: of.into_iter().map(|n| (n, false)).collect(),
            }
        };
        Locking {
            above,
            clauses: clauses.iter().map(clause).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.above.is_none() && self.clauses.is_empty()
    }

    /// How a relation of FROM with this name is locked.
    pub(super) fn of_relation(&mut self, name: &str) -> Option<RowLock> {
        let mut lock = self.above;
        for c in &mut self.clauses {
            let all = c.of.is_empty();
            let named = c.of.iter_mut().find(|(n, _)| n == name);
            if all || named.map(|n| n.1 = true).is_some() {
                lock = Some(lock.map_or(c.lock, |l| l.join(c.lock)));
            }
        }
        lock
    }

    /// 0A000 where a clause names a CTE.
    pub(super) fn may_name_cte(&self, name: &str) -> Result<()> {
        let mut named = self.clauses.iter().flat_map(|c| &c.of);
        match named.any(|(n, _)| n == name) {
            true => Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "FOR UPDATE cannot be applied to a WITH query",
            )),
            false => Ok(()),
        }
    }

    /// 42P01 where a clause names what FROM has not.
    pub(super) fn all_found(&self) -> Result<()> {
        let mut named = self.clauses.iter().flat_map(|c| &c.of);
        match named.find(|(_, found)| !found) {
            Some((name, _)) => Err(Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{name}\" in FOR UPDATE clause not found in FROM clause"),
            )),
            None => Ok(()),
        }
    }
}

/// Puts the conditions of a query into those of its subqueries that lock their rows. They stand in the query all the same.
pub(super) fn narrow(items: &mut [From], conditions: &[Expr]) {
    for item in items {
        match item {
            From::Rel { rel, slots, .. } => {
                for c in conditions {
                    narrow_rel(rel, slots, c);
                }
            }
            From::Inner { items, .. } => narrow(items, conditions),
            From::Left { left, .. } => narrow(std::slice::from_mut(left), conditions),
            _ => {}
        }
    }
}

/// Adds a condition on the columns of a subquery to what is joined in it, if it locks rows, which are sorted at most.
fn narrow_rel(rel: &mut Logical, slots: &[Slot], condition: &Expr) {
    let moves = |e: &Expr| e.volatility() < Volatility::Volatile && !e.has_subquery();
    let mut own = moves(condition);
    condition.slots(&mut |s| own &= slots.contains(&s));
    let Logical::Lock { input, .. } = rel else {
        return;
    };
    let mut node = &mut **input;
    if let Logical::Sort { input, .. } = node {
        node = &mut **input;
    }
    let mut columns: &[(Slot, Expr)] = &[];
    if let Logical::Project { input, exprs } = node {
        (node, columns) = (&mut **input, exprs);
    }
    let Logical::Join { filter, .. } = node else {
        return;
    };
    let mut inside = condition.clone();
    inside.rewrite(&mut |part| {
        if let Expr::Slot(s) = part
            && let Some((_, e)) = columns.iter().find(|c| c.0 == *s)
        {
            own &= moves(e);
            *part = e.clone();
        }
    });
    if own {
        filter.push(inside);
    }
}
