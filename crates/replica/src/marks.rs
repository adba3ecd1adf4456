//! How far a replica has come.
//!
//! ```text
//! visible <= min(applied, published at the primary);   applied <= scheduled <= received;   persisted, published <= received
//! ```
//! *Published* as the primary says it is a claim about its own term's history, and may lie beyond what has arrived. Two primaries that were
//! promoted behind the same position give the same positions to different commits, so a claim of a term that is followed no more says nothing about
//! what its successor sends. Hence the mark holds of the claim what has been received, and with a newer term the claim begins anew.

use base::{Position, Watermark};
use env::sync::Mutex;
use env::sync::atomic::{AtomicU64, Ordering};

/// The watermarks of a replica. Each has one owner, who raises it; everybody reads.
#[derive(Debug, Default)]
pub struct ReplicaMarks {
    /// Everything up to it has arrived. Owner: the receiver.
    pub received: Watermark,
    /// Everything up to it is durable in this replica's own log. Owner: the thread that writes the log.
    pub persisted: Watermark,
    /// Everything up to it has been handed out to workers. Owner: the scheduler.
    pub scheduled: Watermark,
    /// Everything up to it is installed (`n` of C5 §7.2). Owner: the snapshotter.
    pub applied: Watermark,
    /// *Published* at the primary, as far as it has been received. Owner: [`ReplicaMarks::hear`], replay for what is in a group.
    pub published: Watermark,
    /// What readers see (`c` of C5 §7.2). Owner: the snapshotter.
    pub visible: Watermark,
    /// The newest term that spoke, and what it has published.
    claim: Mutex<(u64, Position)>,
    /// The term in it.
    spoke: AtomicU64,
}

impl ReplicaMarks {
    /// All at one position: a start.
    pub fn new(at: Position) -> ReplicaMarks {
        let mark = || Watermark::new(at);
        ReplicaMarks {
            received: mark(),
            persisted: mark(),
            scheduled: mark(),
            applied: mark(),
            published: mark(),
            visible: mark(),
            claim: Mutex::default(),
            spoke: AtomicU64::new(0),
        }
    }

    /// The primary of `term` says that it has published this. Call it before anything of that term is received, and again afterwards.
    /// Words of an older term than the newest that spoke are void.
    pub fn hear(&self, term: u64, published: Position) {
        // Received is read with the lock held: it grows by what a newer term sent only after that term has been heard.
        let mut claim = self.claim.lock();
        if term > claim.0 {
            *claim = (term, published);
            self.spoke.store(term, Ordering::SeqCst);
        } else if term == claim.0 {
            claim.1 = claim.1.max(published);
        } else {
            return;
        }
        self.published.raise(claim.1.min(self.received.get()));
    }

    /// What the primary has published, received or not.
    pub fn claimed(&self) -> Position {
        self.claim.lock().1.max(self.published.get())
    }

    /// The newest term that spoke; 0: none has.
    pub fn claimed_term(&self) -> u64 {
        self.spoke.load(Ordering::SeqCst)
    }

    /// The term whose primary's words count, where `known` is the newest of the history here, and `heard` the newest that was heard of; 0: none, as
    /// nobody of the newest has said that the histories agree.
    pub fn followed(&self, known: u64, heard: u64) -> u64 {
        let agreed = known.max(self.claimed_term());
        if heard > agreed { 0 } else { agreed }
    }

    /// The inequality, asserted. Read from the smallest up, so that growth meanwhile does no harm.
    pub fn check(&self) {
        let visible = self.visible.get();
        let applied = self.applied.get();
        let published = self.published.get();
        let scheduled = self.scheduled.get();
        let persisted = self.persisted.get();
        let received = self.received.get();
        assert!(
            visible <= applied && visible <= published,
            "visible {visible} <= min(applied {applied}, published {published}) does not hold"
        );
        assert!(
            applied <= scheduled && scheduled <= received && persisted.max(published) <= received,
            "applied {applied} <= scheduled {scheduled} <= received {received} >= persisted {persisted}, published {published} does not hold"
        );
    }
}

#[cfg(all(test, not(feature = "shuttle")))] // shuttle's primitives work inside its scheduler only
mod tests {
    use super::*;

    fn p(order: u32) -> Position {
        Position::new(7, order)
    }

    #[test]
    fn what_is_not_here_is_claimed_until_it_comes() {
        let m = ReplicaMarks::default();
        m.received.raise(p(5));
        m.hear(1, p(9));
        assert_eq!((m.published.get(), m.claimed()), (p(5), p(9)));
        m.received.raise(p(8));
        m.hear(1, p(2));
        assert_eq!(m.published.get(), p(8));
    }

    /// Terms 2 and 3 both began behind 5; what 2 has published of its 6 to 9 says nothing about those of 3.
    #[test]
    fn another_history_begins_with_no_claim() {
        let m = ReplicaMarks::default();
        m.received.raise(p(5));
        m.hear(2, p(9));
        m.hear(3, p(3));
        m.received.raise(p(8));
        m.hear(3, p(4));
        assert_eq!(m.published.get(), p(5));
        m.hear(2, p(9));
        assert_eq!(m.claimed_term(), 3);
        assert_eq!(m.published.get(), p(5), "a word that came late");
        m.hear(3, p(7));
        assert_eq!((m.published.get(), m.claimed()), (p(7), p(7)));
    }
}
