//! Snapshots that a transaction does not take by itself: those given to it, at a replica, and those that rest with a portal.

use base::Position;
use store::View;

use crate::state::Parked;
use crate::txn::{Isolation, Txn};

impl Txn {
    /// At a replica: the next snapshot stands at `at`, or where the node stands if that is later. Rows up to it may be still to
    /// come, so the caller sees to it that none of them is of what is read. The position that it got.
    ///
    /// The snapshot is registered now: what replay brings later is kept for it. The schema is another question, since a change
    /// of it may be to come, too: see [`Txn::look_again`].
    pub fn set_read_position(&mut self, at: Position) -> Position {
        let marks = &self.shared.marks;
        let newest = || marks.published.get().max(at).max(marks.floor);
        let s = self.shared.store.snapshots.take(newest);
        let at = s.position();
        self.standing.next = Some(s);
        self.look_again();
        at
    }

    /// Takes the schema at the position of [`Txn::set_read_position`], once it is known to be here.
    pub fn look_again(&mut self) {
        if let Some(s) = &self.standing.next {
            self.schema.see(self.shared.catalog_at(s.position()));
        }
    }

    /// Forgets a position of [`Txn::set_read_position`] that no statement has taken: the wait for it failed, or what comes has to be newer.
    pub fn stand_nowhere(&mut self) {
        let had = self.standing.next.take().is_some();
        if had {
            self.standing.hold = None;
        }
        if had && self.schema.own.is_none() {
            self.see_newest();
        }
    }

    /// What this node shows is as new as the next statement wants it, which takes its snapshot by itself; the schema is looked at now, for
    /// who plans before that.
    pub fn look_at_newest(&mut self) {
        if self.schema.own.is_none()
            && self.schema.catalog.schema.version != self.shared.schema_version()
        {
            self.see_newest();
        }
    }

    fn see_newest(&mut self) {
        let (from, catalog) = self.shared.newest_catalog();
        self.schema.see(catalog);
        self.schema.from = from;
    }

    /// Whether the next statement takes a snapshot, and the transaction does not stand at the one that it has.
    pub fn wants_snapshot(&self) -> bool {
        self.standing.next.is_none()
            && self.standing.resumed.is_none()
            && (self.reads.view.is_none() || self.options.isolation == Isolation::ReadCommitted)
    }

    /// Sets the snapshot of the last statement aside, which goes on later ([`Txn::resume`]); the statements between have their own.
    /// Nothing above READ COMMITTED, where all stand at the same.
    pub fn park(&mut self) -> Option<Parked> {
        if self.options.isolation != Isolation::ReadCommitted {
            return None;
        }
        let catalog = self.schema.catalog.clone();
        let next = View::new(self.take_snapshot());
        let view = self.reads.view.replace(next)?;
        Some(Parked { view, catalog })
    }

    /// The next statement goes on at this snapshot.
    pub fn resume(&mut self, parked: Parked) {
        self.standing.resumed = Some(parked);
    }
}
