//! Installing: the versions of a certified commit become the newest of their records, and the records are unlocked.
//!
//! Nothing here can fail. The record for the log is finished with the position, and goes to the order after the last unlock.
//!
//! Left out on purpose: waiting for the log, which belongs to the reply.

use base::Position;

use super::prepare::Prepared;

/// A chain of this many versions is trimmed by the commit that makes it longer.
const LONG_CHAIN: usize = 16;

impl Prepared<'_> {
    /// Installs at `position`. The commit's record for the log: heads and data.
    pub(super) fn install(self, position: Position) -> (Vec<u8>, Vec<u8>) {
        let (txn, guard) = (self.txn, self.guard);
        if let Some(s) = &txn.schema.own {
            let all = &txn.schema.catalog;
            match &txn.schema.temp {
                Some(temp) => s.install(&txn.shared, &temp.now.without(all), position),
                None => s.install(&txn.shared, all, position),
            }
        }
        for t in self.tables {
            t.table.storage.written_at(position);
        }
        for (l, version) in self.locked.iter().zip(self.versions) {
            let storage = &l.table.table.storage;
            l.record.push(version, position, 0);
            let (is, was) = (l.change.row.is_some(), l.change.existed);
            storage.count(i64::from(is) - i64::from(was));
            if l.change.saw != Position::ZERO || !is {
                let decided = || txn.shared.marks.decided.get();
                txn.shared
                    .store
                    .trim_long(storage, l.record, LONG_CHAIN, decided, guard);
                storage.mark_stale(l.record, position);
            }
            l.record.unlock();
        }
        if !txn.notifications.is_empty() {
            // Before the position counts as installed, so before it can be published.
            let all = txn.notifications.clone();
            txn.shared.notifications.add(position, all);
        }
        self.log.finish(position, 0)
    }
}
