//! FOR UPDATE, NO KEY UPDATE, SHARE, KEY SHARE.
//!
//! A relation of FROM is marked by its name when it is bound, and the marked tables are locked by the query that joins their rows:
//!
//! | relation | what is locked |
//! |---|---|
//! | table | its rows |
//! | subquery, view | the rows of its tables, as if the clause stood in it. One that melts is locked where it melts to, the others lock by themselves |
//! | UNION, INTERSECT, EXCEPT | of a subquery 0A000; of a view nothing, as in PostgreSQL |
//! | CTE | nothing, as in PostgreSQL; naming it is 0A000 |
//! | catalog | nothing |
//!
//! A subquery that locks by itself takes the conditions on its rows from the query around (`locking::narrow`), so that rows which these refuse are
//! not locked.
//!
//! Left out on purpose: conditions for a subquery with a LIMIT or OFFSET. All rows that it gives are locked, as in PostgreSQL.

use super::Binder;
use super::locking::RowLock;
use crate::expr::Slot;
use crate::logical::{From, LockTarget, TableRef};
use base::schema::privilege;
use base::{Error, Result, SqlState};
use txn::WaitPolicy;

impl Binder<'_> {
    /// Gives the marked tables of a FROM clause a slot for their rows' keys.
    pub(super) fn lock_targets(&mut self, items: &mut [From]) -> Result<Vec<LockTarget>> {
        let mut found = vec![];
        for i in items {
            self.lock_in(i, false, &mut found)?;
        }
        Ok(found)
    }

    /// Marks a relation that has been bound. `item` is that of a subquery or view.
    pub(super) fn mark_subquery(&mut self, item: &From, lock: Option<RowLock>) {
        if let (From::Rel { slots, .. }, Some(lock)) = (item, lock)
            && let Some(first) = slots.first()
        {
            self.marks.push((*first, lock));
        }
    }

    fn take_mark(&mut self, slot: Slot, nullable: bool) -> Result<Option<RowLock>> {
        let Some(at) = self.marks.iter().position(|m| m.0 == slot) else {
            return Ok(None);
        };
        match nullable {
            true => Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "FOR UPDATE cannot be applied to the nullable side of an outer join",
            )),
            false => Ok(Some(self.marks.swap_remove(at).1)),
        }
    }

    fn lock_in(
        &mut self,
        item: &mut From,
        nullable: bool,
        out: &mut Vec<LockTarget>,
    ) -> Result<()> {
        match item {
            From::Table(t) => {
                if let Some(lock) = self.take_mark(t.base, nullable)? {
                    self.lock_table(t, lock, out);
                }
            }
            From::Inner { items, .. } => {
                for i in items {
                    self.lock_in(i, nullable, out)?;
                }
            }
            From::Left { left, right, .. } => {
                self.lock_in(left, nullable, out)?;
                self.lock_in(right, true, out)?;
            }
            From::Full { left, right, .. } => {
                self.lock_in(left, true, out)?;
                self.lock_in(right, true, out)?;
            }
            // It locks by itself.
            From::Rel { slots, .. } => {
                if let Some(first) = slots.first() {
                    self.take_mark(*first, nullable)?;
                }
            }
            From::Virtual { .. } | From::Function(_) | From::Cte { .. } => {}
        }
        Ok(())
    }

    /// A locking clause goes on to the branches of no set operation. 0A000 where the clause and the operation stand in one text.
    pub(super) fn lock_set_operation(&mut self) -> Result<()> {
        if self.views.is_empty() {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT",
            ));
        }
        let mut view = 0;
        for inner in self.views.clone() {
            self.need_in(view, inner, privilege::UPDATE);
            view = inner;
        }
        Ok(())
    }

    fn lock_table(&mut self, t: &mut TableRef, lock: RowLock, out: &mut Vec<LockTarget>) {
        // The role that locks needs the right on the outermost view, each view's owner on what stands in it.
        let mut view = 0;
        for &inner in &*t.views {
            self.need_in(view, inner, privilege::UPDATE);
            view = inner;
        }
        self.need_in(view, t.table.def.id, privilege::UPDATE);
        let slot = match t.key_slot {
            Some(s) => s,
            None => self.key_slot(t),
        };
        t.skips |= lock.wait == WaitPolicy::SkipLocked;
        if let Some(handle) = t.handle.clone() {
            out.push(LockTarget {
                handle,
                key_slot: slot,
                mode: lock.mode,
                wait: lock.wait,
            });
        }
    }
}
