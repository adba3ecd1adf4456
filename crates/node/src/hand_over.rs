//! A replica asks for a hand-over, again and again until it is told that it may begin: what of that is done, and when it is told.
//!
//! ```text
//! asked ──▶ the node is sealed, once ──▶ all that it has is decided, or has waited long enough ──▶ told
//! ```
//! The replica is told late because its connection ends then, and with that its vote: commits that wait for it would wait for ever. And
//! it is told, also when another replica, which a commit waits for, does not answer.
//!
//! Left out on purpose: clock, disk and connection (`sending`).

use base::Position;
use std::time::Duration;

/// How long commits that too few replicas have acknowledged hold it up.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);

/// Of one connection.
#[derive(Debug, Default)]
pub(crate) struct HandOver {
    asked: bool,
    /// This node takes no more writes; the last position, and since when.
    sealed: Option<(Position, Duration)>,
}

impl HandOver {
    /// The replica asks. Whether the node is to be sealed now: not for one that asks again.
    pub fn asked(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// The node was sealed. `now`: of any clock that does not go back.
    pub fn sealed(&mut self, last: Position, now: Duration) {
        self.sealed = Some((last, now));
    }

    /// The position that the replica is to be told, when it is, once. `undecided`: commits up to there wait for replicas that could
    /// acknowledge them.
    pub fn due(
        &mut self,
        now: Duration,
        undecided: impl FnOnce(Position) -> bool,
    ) -> Option<Position> {
        let (last, since) = self.sealed?;
        if now.saturating_sub(since) < SETTLE && undecided(last) {
            return None;
        }
        *self = HandOver::default();
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Position = Position::from_u64(9);

    /// Asks every 100 ms, as replicas do, until it is told; when.
    fn told(undecided: impl Fn(Duration) -> bool) -> Option<Duration> {
        let mut h = HandOver::default();
        let times = (0..1000).map(|n| Duration::from_millis(100 * n));
        for now in times {
            if h.asked() {
                h.sealed(LAST, now);
            }
            if let Some(last) = h.due(now, |at| at == LAST && undecided(now)) {
                assert_eq!(last, LAST);
                assert_eq!(h.due(now, |_| false), None, "once");
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn a_replica_is_told_when_all_is_decided_or_has_waited_long_enough() {
        assert_eq!(told(|_| false), Some(Duration::ZERO));
        let second = Duration::from_secs(1);
        assert_eq!(told(|now| now < second), Some(second));
        assert_eq!(told(|_| true), Some(SETTLE));
    }

    #[test]
    fn the_node_is_sealed_once_for_one_that_asks_again() {
        let mut h = HandOver::default();
        assert_eq!(h.due(SETTLE, |_| false), None, "nobody asked");
        assert!(h.asked());
        assert!(!h.asked());
        assert_eq!(h.due(SETTLE, |_| false), None, "it is not sealed yet");
        h.sealed(LAST, SETTLE);
        assert!(!h.asked());
    }
}
