//! Waiting until commits that hold a record are over: with it, or with it as far as a position is concerned.
//!
//! Left out on purpose: a limit of time. A commit that holds a record waits for no lock, disk or network.

use base::Position;
use store::{Holder, Record};

use crate::backoff::Backoff;

/// Waits until nobody is committing the record.
pub(crate) fn settle(record: &Record) {
    let mut wait = Backoff::default();
    while record.holder() != Holder::Nobody {
        wait.pause();
    }
}

/// Waits until no commit below `me` holds the record. One that has not asked for a position yet will get a larger one if `me` is
/// given already; so nobody who waits here waits for somebody who waits for his locks. With [`Position::MAX`], which is no
/// commit's, nobody may hold it at all; who asks so holds no record himself.
pub(crate) fn settle_below(record: &Record, me: Position) {
    let mut wait = Backoff::default();
    loop {
        match record.holder() {
            Holder::Nobody => return,
            Holder::Locked if me != Position::MAX => return,
            Holder::Commit(p) if p >= me => return,
            Holder::Locked | Holder::Commit(_) | Holder::Ordering => wait.pause(),
        }
    }
}
