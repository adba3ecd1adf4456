//! What replay asks of the node: schema changes, sequences, and the news of what is visible.

use base::schema::{Change, Object, decode_changes};
use base::{Error, Oid, Position, Result, SqlState};
use commit::Waiters;
use replica::replay::{Build, SchemaSink};
use std::sync::Arc;
use txn::{TableHandle, TxnManager, fill_index, follow_changes, is_rewrite};

use crate::notice::Notice;
use crate::ranges::Ranges;
use crate::sequences::{Logged, Sequences};

pub(crate) struct Sink {
    pub manager: Arc<TxnManager>,
    pub sequences: Arc<Sequences>,
    pub ranges: Arc<Ranges>,
    pub waiters: Arc<Waiters>,
    pub moved: Arc<Notice>,
}

fn changes_of(bytes: &[u8]) -> Result<Vec<Change>> {
    decode_changes(bytes).ok_or_else(|| {
        Error::new(
            SqlState::DATA_CORRUPTED,
            "a schema change that was received is not readable",
        )
    })
}

impl SchemaSink for Sink {
    fn schema(&self, at: Position, changes: &[u8]) -> Result<Vec<Build>> {
        let changes = changes_of(changes)?;
        let unfilled = follow_changes(&self.manager, at, &changes)?;
        for change in &changes {
            match change {
                Change::Put(Object::Sequence(s)) => self.ranges.forget(s.id, at),
                Change::Drop(id) => self.ranges.forget(*id, at),
                Change::Put(_) => {}
            }
        }
        let build = |(table, place): (Arc<TableHandle>, usize)| {
            let store = self.manager.store.clone();
            let fill = move || {
                fill_index(&table, place, &store);
                Ok(())
            };
            Box::new(fill) as Build
        };
        Ok(unfilled.into_iter().map(build).collect())
    }

    fn needs_barrier(&self, changes: &[u8]) -> Result<bool> {
        Ok(is_rewrite(&changes_of(changes)?))
    }

    fn sequence(&self, at: Position, id: Oid, state: &[u8]) -> Result<()> {
        let logged = Logged::decode(state).ok_or_else(|| {
            Error::new(
                SqlState::DATA_CORRUPTED,
                "a sequence's record that was received is not readable",
            )
        })?;
        self.sequences.restore(id, logged);
        if logged.set {
            self.ranges.forget(id, at);
        }
        Ok(())
    }

    fn notification(&self, at: Position, notification: &[u8]) -> Result<()> {
        let n = base::Notification::decode(notification).ok_or_else(|| {
            Error::new(
                SqlState::DATA_CORRUPTED,
                "a notification that was received is not readable",
            )
        })?;
        self.manager.notifications.add(at, vec![n]);
        Ok(())
    }

    fn visible(&self, to: Position) {
        self.manager.marks.show(to);
        self.waiters.wake(to);
        self.moved.moved();
    }
}
