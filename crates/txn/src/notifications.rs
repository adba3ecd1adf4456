//! Notifications (`NOTIFY`) between their commit and the moment in which its position is shown.
//!
//! A commit puts its notifications here before it counts as installed, replay before the commit is shown. Who delivers takes those up to
//! what is published, in the order of the log. So a listener hears of a row when the row is there, and hears in commit order, at every
//! node. Recovery puts nothing here: what was said before the start is not said again.
//!
//! Limits: [`MOST`] bytes wait for their positions to be published, then NOTIFY's commit is refused (54000).
//!
//! Left out on purpose: listeners, which are sessions.

use base::{Error, Notification, Position, Result, SqlState};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that wait at most, at a primary.
pub const MOST: usize = 64 << 20;
/// What a notification takes beside its texts.
const ENTRY: usize = 64;

/// See the head of the file.
#[derive(Default)]
pub struct Notifications {
    waiting: Mutex<BTreeMap<Position, Vec<Notification>>>,
    bytes: AtomicUsize,
}

fn size(all: &[Notification]) -> usize {
    all.iter().map(|n| n.bytes() + ENTRY).sum()
}

impl Notifications {
    /// Those of the commit at this position.
    pub fn add(&self, at: Position, all: Vec<Notification>) {
        let mut waiting = self.waiting.lock();
        self.bytes.fetch_add(size(&all), Ordering::SeqCst);
        waiting.entry(at).or_default().extend(all);
    }

    /// 54000 when there is no room for these.
    pub(crate) fn check_room(&self, all: &[Notification]) -> Result<()> {
        if self.bytes.load(Ordering::SeqCst) + size(all) <= MOST {
            return Ok(());
        }
        Err(Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "too many notifications in the NOTIFY queue",
        )
        .detail(format!(
            "{MOST} bytes of notifications may wait for their commits to be published."
        )))
    }

    /// Whether some wait.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) == 0
    }

    /// How full the queue is, from 0 to 1.
    pub fn usage(&self) -> f64 {
        self.bytes.load(Ordering::Relaxed) as f64 / MOST as f64
    }

    /// Those up to this position, in the order of the log.
    pub fn take(&self, upto: Position) -> Vec<(Position, Vec<Notification>)> {
        let mut waiting = self.waiting.lock();
        let later = waiting.split_off(&upto.next());
        let due = std::mem::replace(&mut *waiting, later);
        let bytes: usize = due.values().map(|all| size(all)).sum();
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        due.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_in_the_order_of_their_positions() {
        let q = Notifications::default();
        let n = |c: &str| Notification {
            channel: c.into(),
            payload: "".into(),
            pid: 1,
        };
        for at in [3, 1, 2] {
            q.add(Position::new(1, at), vec![n(&at.to_string())]);
        }
        let taken = q.take(Position::new(1, 2));
        let channels: Vec<_> = taken.iter().map(|(_, all)| &*all[0].channel).collect();
        assert_eq!(channels, ["1", "2"]);
        assert!(!q.is_empty());
        assert_eq!(q.take(Position::new(9, 0)).len(), 1);
        assert!(q.is_empty());
        let big = Notification {
            payload: "x".repeat(MOST).into(),
            ..n("c")
        };
        assert!(q.check_room(&[big]).is_err());
    }
}
