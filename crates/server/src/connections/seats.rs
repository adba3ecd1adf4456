//! Where a connection stands: in the room of those that have not proven who they are, then in one of the server's `max_connections` seats.
//!
//! Only a role that has logged in takes a seat, so strangers that say nothing keep nobody out. Nodes need none for what commits may wait for: the log, and the
//! control plane.
//!
//! Left out on purpose: seats that are kept for superusers.

use super::visitor::too_many;
use base::Result;
use service::room::Place;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The seats of a server.
pub struct Seats {
    most: usize,
    taken: AtomicUsize,
}

impl Seats {
    pub fn of(most: usize) -> Arc<Seats> {
        Arc::new(Seats {
            most,
            taken: AtomicUsize::new(0),
        })
    }

    fn take(&self) -> bool {
        let more = |n| (n < self.most).then_some(n + 1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        self.taken.fetch_update(set, fetch, more).is_ok()
    }
}

/// See the head of the file.
pub struct Standing {
    unproven: Option<Place>,
    seats: Arc<Seats>,
    seated: bool,
    refused: bool,
}

impl Standing {
    /// A connection that has come in.
    pub fn new(place: Place, seats: Arc<Seats>) -> Standing {
        Standing {
            unproven: Some(place),
            seats,
            seated: false,
            refused: false,
        }
    }

    /// It has proven who it is.
    pub fn proven(&mut self) {
        self.unproven = None;
    }

    /// Takes a seat, if there is one.
    pub fn sits(&mut self) -> bool {
        self.seated = self.seated || self.seats.take();
        self.seated
    }

    /// The same; 53300.
    pub fn has_to_sit(&mut self) -> Result<()> {
        self.refused = !self.sits();
        match self.refused {
            true => Err(too_many()),
            false => Ok(()),
        }
    }

    /// Whether it found no seat.
    pub fn was_refused(&self) -> bool {
        self.refused
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.seated {
            self.seats.taken.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::room::Room;

    #[test]
    fn a_seat_is_taken_once_and_given_back() {
        let (room, seats) = (Room::of(8), Seats::of(1));
        let stands = || Standing::new(room.enter().0, seats.clone());
        let (silent, mut first, mut second) = (stands(), stands(), stands());
        assert!(first.sits() && first.has_to_sit().is_ok());
        let refused = second.has_to_sit().expect_err("there is one seat");
        assert_eq!(refused.code(), base::SqlState::TOO_MANY_CONNECTIONS);
        assert!(second.was_refused() && !first.was_refused());
        drop((silent, first));
        assert!(second.has_to_sit().is_ok() && !second.was_refused());
    }
}
