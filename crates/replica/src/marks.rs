//! How far a replica has come.
//!
//! ```text
//! visible <= min(applied, published at the primary);   applied <= scheduled <= received;   persisted <= received
//! ```

use base::{Position, Watermark};

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
    /// *Published* at the primary, as last heard. Owner: the receiver.
    pub published: Watermark,
    /// What readers see (`c` of C5 §7.2). Owner: the snapshotter.
    pub visible: Watermark,
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
        }
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
            applied <= scheduled && scheduled <= received && persisted <= received,
            "applied {applied} <= scheduled {scheduled} <= received {received} >= persisted {persisted} does not hold"
        );
    }
}
