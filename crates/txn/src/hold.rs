//! Snapshots that a primary keeps for transactions which read at a replica and may yet write.
//!
//! ```text
//! replica   REPEATABLE READ begins ──▶ hold: a snapshot at what is published, kept here under a number     TxnManager::hold
//!           reads at that position            Txn::stand_held
//!           writes: it moves, with the number ──▶ goes on at that very snapshot                            Txn::adopt_reads
//!           ends without writing ──▶ let go                                                                TxnManager::let_go
//! ```
//! So the versions that such a transaction sees stay at the primary for as long as it may come, as if it ran there: the price of
//! a snapshot that goes along. What holds the number on the replica's side, and lets go when it is dropped, is a [`Hold`]; the
//! primary lets go of all numbers of a connection that ends.
//!
//! Numbers are a node's own. After a change of the primary one that was given by the old one is not found, or belongs to a snapshot at
//! another position; only where nothing was committed between the two may it be one of the same position, and so of the same state: then
//! the transaction takes it, and the one for which it was meant finds it gone, which is what both must be ready for anyway.
//!
//! Left out on purpose: SERIALIZABLE, whose snapshot moves forward to the newest state, and READ COMMITTED, which has none.

use base::Position;
use store::Snapshot;

use crate::holds::RemoteSnapshot;
use crate::manager::TxnManager;
use crate::txn::Txn;

impl TxnManager {
    /// Keeps a snapshot at what is published, until it is let go or a transaction goes on at it. Its number, and where it stands.
    pub fn hold(&self) -> (u64, Position) {
        let marks = &self.marks;
        let newest = || marks.published.get().max(marks.floor);
        let snapshot = self.store.snapshots.take(newest);
        let at = snapshot.position();
        (self.holds.keep(snapshot), at)
    }

    /// It is not needed any more; nothing, if it is not there.
    pub fn let_go(&self, number: u64) {
        self.holds.let_go(number);
    }

    /// How many are kept.
    pub fn held(&self) -> usize {
        self.holds.len()
    }

    /// Takes one out, if it stands there and has not gone over its age limit.
    pub(crate) fn take_held(&self, number: u64, at: Position) -> Option<Snapshot> {
        self.holds.take(number, at)
    }
}

impl Txn {
    /// At a replica: the transaction's one snapshot stands where the primary keeps one for it. No: what this node shows is past it, and
    /// some of what it needs may be gone here; then another is to be asked for.
    pub fn stand_held(&mut self, hold: Box<dyn RemoteSnapshot>) -> bool {
        if hold.position() < self.shared.marks.floor {
            return false;
        }
        let Some(s) = self.shared.store.snapshots.take_at(hold.position()) else {
            return false;
        };
        self.standing.next = Some(s);
        self.standing.hold = Some(hold);
        self.look_again();
        true
    }

    /// The number of what is kept at this position; 0: nothing.
    pub(crate) fn held_at(&self, at: Position) -> u64 {
        let hold = self.standing.hold.as_ref().filter(|h| h.position() == at);
        hold.map_or(0, |h| h.number())
    }

    /// What the primary keeps for it; to be kept until the transaction has arrived there.
    pub fn take_hold(&mut self) -> Option<Box<dyn RemoteSnapshot>> {
        self.standing.hold.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Catalog;
    use base::Watermarks;
    use std::sync::Arc;
    use store::Store;

    #[test]
    fn what_is_held_is_live_until_it_is_let_go_or_taken() {
        let (marks, at) = (Arc::<Watermarks>::default(), Position::new(1, 5));
        marks.published.raise(at);
        let m = TxnManager::new(Arc::<Store>::default(), marks.clone(), Catalog::default());
        let (a, first) = m.hold();
        let (b, _) = m.hold();
        assert_eq!((first, m.held()), (at, 2));
        assert_ne!(a, b);
        let newest = Position::new(9, 0);
        marks.published.raise(newest);
        assert_eq!(m.store.snapshots.live(newest), [at, newest]);
        assert!(m.take_held(a, newest).is_none(), "of another position");
        assert!(m.take_held(0, at).is_none());
        let mine = m.take_held(a, at).expect("as it was held");
        assert!(m.take_held(a, at).is_none(), "once");
        m.let_go(b);
        m.let_go(b);
        assert_eq!(m.store.snapshots.live(newest), [at, newest]);
        drop(mine);
        assert_eq!(m.store.snapshots.live(newest), [newest]);
        assert_eq!(m.held(), 0);
        let (old, at) = m.hold();
        m.store.snapshots.tick(1_000, 10);
        assert!(m.take_held(old, at).is_none(), "over its age limit");
        assert_eq!(m.held(), 0);
    }
}
