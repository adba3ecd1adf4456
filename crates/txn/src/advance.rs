//! Moving a snapshot forward: everything that earlier statements read is looked up at the newer one, and compared as commit compares it
//! (`commit`, `range`). Rows by key lie in the view, which does the moving; absences and ranges are looked at first.
//!
//! Left out on purpose: going back, and going on to where only some of it is the same.

use base::{Position, Result};
use std::sync::Arc;
use store::{Expired, pin};

use crate::handle::TableHandle;
use crate::range::{Look, RangeRead, Spared, same_row};
use crate::state::Conflict;
use crate::stats::Cause;
use crate::txn::Txn;

/// What a move of the snapshot found out about what was read.
pub(crate) struct Kept {
    /// What of the reads had to be asked to know that they are the same.
    pub(crate) spared: Option<Spared>,
    /// Rows of split values that changed and show the same, with the columns that were looked at. They may have further records by
    /// now, which count as read from here on.
    split: Vec<(Arc<TableHandle>, Box<[u8]>, u64)>,
}

impl Kept {
    fn note(&mut self, table: &Arc<TableHandle>, record: &store::Record, columns: u64) {
        if !table.spreads.is_empty() {
            self.split
                .push((table.clone(), record.key().into(), columns));
        }
    }
}

impl Txn {
    /// After a wait: the transaction that held the row has most likely changed it, so the snapshot moves at once if it may. If not, the
    /// statement finds out by itself whether it has to.
    pub(crate) fn follow(&mut self) -> Result<()> {
        let old = self.view()?.position();
        let before = self.schema.catalog.clone();
        let to = self.take_snapshot();
        let guard = pin();
        let mut kept = self.kept();
        let same = self.others_unchanged(old, to.position(), &mut kept, &guard)
            && self.guards_hold(to.position(), &guard);
        if same && self.advance(to, &mut kept, &guard)? {
            self.has_moved(kept);
        } else if !Arc::ptr_eq(&before, &self.schema.catalog) {
            // The snapshot stays, and its schema with it: in storage that is newer it would see no row.
            self.schema.see(before);
        }
        Ok(())
    }

    /// Moves the snapshot if the rows that were read by key are the same there.
    pub(crate) fn advance(
        &mut self,
        to: store::Snapshot,
        kept: &mut Kept,
        guard: &store::Guard,
    ) -> Result<bool> {
        let mut view = self.reads.view.take().expect("a statement has run");
        let between = (view.position(), to.position());
        let moved = view.advance(to, guard, |r, storage, columns| {
            let table = self.table_of(storage);
            let Some(t) = table.filter(|t| same_row(t, columns, r, between, guard)) else {
                return false;
            };
            kept.spared = kept.spared.max(Some(Spared::Columns));
            kept.note(t, r, columns);
            true
        });
        self.reads.view = Some(view);
        moved.map_err(|Expired| Txn::snapshot_too_old())
    }

    /// The table whose rows are here, as the transaction sees it.
    pub(crate) fn table_of(&self, storage: &store::Storage) -> Option<&Arc<TableHandle>> {
        self.schema.catalog.of_storage(storage.id)
    }

    pub(crate) fn has_moved(&mut self, kept: Kept) {
        self.standing.moves += 1;
        self.reads.spared = kept.spared;
        self.shared.stats.moved();
        for (table, key, columns) in kept.split {
            self.note_shown(&table, &key, columns, None);
        }
    }

    /// What a look at everything read begins with.
    pub(crate) fn kept(&self) -> Kept {
        Kept {
            spared: self.reads.spared,
            split: vec![],
        }
    }

    pub(crate) fn move_snapshot(&mut self, why: &Conflict) -> Result<()> {
        let fail = |this: &Txn, cause| {
            this.shared.stats.abort(cause);
            Err(this.conflict_error(why))
        };
        if self.standing.portals > 0 {
            return fail(self, Cause::PortalOpen);
        }
        let old = self.view()?.position();
        let to = self.take_snapshot();
        let new = to.position();
        if new < why.winner {
            return fail(self, Cause::ReadChanged);
        }
        let guard = pin();
        let recheck = !env::fault::planted("move_without_recheck");
        let mut kept = self.kept();
        if recheck && !self.others_unchanged(old, new, &mut kept, &guard) {
            return fail(self, Cause::ReadChanged);
        }
        if !self.guards_hold(new, &guard) {
            return fail(self, Cause::ReadChanged);
        }
        if recheck {
            if !self.advance(to, &mut kept, &guard)? {
                return fail(self, Cause::ReadChanged);
            }
        } else if let Some(view) = &mut self.reads.view {
            view.renew(to);
        }
        self.has_moved(kept);
        Ok(())
    }

    /// Whether absences and ranges read at `old` are the same at `new`, and what of the ranges had to be asked to know it.
    pub(crate) fn others_unchanged(
        &self,
        old: Position,
        new: Position,
        kept: &mut Kept,
        guard: &store::Guard,
    ) -> bool {
        let same = |r: &store::Record| r.at(new, guard).is_none_or(|v| v.position() <= old);
        let moved = |t: &TableHandle| t.storage.is_changing() && !self.owns_shape(t);
        let changing = self.reads.absent.iter().any(|(t, _)| moved(t))
            || self
                .reads
                .ranges
                .iter()
                .any(|r| moved(&r.table) || self.has_lost_index(r))
            || (self.reads.view.as_ref()).is_some_and(|v| v.is_schema_changed(|s| self.owns(s)));
        !changing
            && self
                .reads
                .absent
                .iter()
                .all(|(t, k)| t.storage.primary.get(k, guard).is_none_or(same))
            && self.reads.ranges.iter().all(|r| {
                if self.is_unwritten(r, old) {
                    return true;
                }
                if let Some(same) = self.same_value(r, (old, new), guard) {
                    return same;
                }
                r.all(guard, &mut |rec, e| {
                    if same(rec) {
                        return true;
                    }
                    match r.look(rec, e, old, new, guard) {
                        Look::Same => true,
                        Look::Spared(by) => {
                            kept.spared = kept.spared.max(Some(by));
                            kept.note(&r.table, rec, r.columns);
                            true
                        }
                        Look::Changed => false,
                    }
                })
            })
    }

    /// Whether a change of the schema has dropped the index of a range since: who writes now says nothing there.
    pub(crate) fn has_lost_index(&self, r: &RangeRead) -> bool {
        let Some(index) = &r.index else { return false };
        if r.table.storage.shape() == r.table.shape || r.table.temporary {
            return false;
        }
        let committed = self.shared.catalog();
        let now = committed.table(r.table.table.def.id);
        let now = now.filter(|t| t.storage.id == r.table.storage.id);
        let mut indexes = now.into_iter().flat_map(|t| t.indexes.iter().flatten());
        !indexes.any(|i| i.spec.id == index.spec.id)
    }

    /// Whether for certain nothing has been written to the table since this snapshot that an installed position shows.
    pub(crate) fn is_unwritten(&self, r: &RangeRead, since: Position) -> bool {
        self.shared.all_own_from(since) && r.table.storage.last_written() <= since
    }
}
