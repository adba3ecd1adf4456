//! Connections of strangers: a room of limited size. A connection that finds the room full pushes out the one that is in it longest.
//!
//! ```text
//! accept ──▶ enter ──▶ the first messages ──▶ the place is given up ──▶ a session, a replica, a member, an answer
//!              └──▶ the room is full: the oldest one is closed without a word
//! ```
//! A stranger that opens connections and says nothing pushes out its own. One that says what it wants needs its place for as long as its messages take.
//!
//! Left out on purpose: addresses. Strangers may come from many.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The connections in it, by the order in which they came.
#[derive(Default)]
struct Inside {
    next: u64,
    all: BTreeMap<u64, oneshot::Sender<()>>,
}

/// See the head of the file.
pub struct Room {
    most: usize,
    inside: Mutex<Inside>,
}

/// A place in the room, until it is dropped.
pub struct Place {
    room: Arc<Room>,
    number: u64,
}

/// Tells that a place is taken away; none: it was given up, or taken.
pub struct Notice(Option<oneshot::Receiver<()>>);

impl Room {
    /// With so many places.
    pub fn of(most: usize) -> Arc<Room> {
        Arc::new(Room {
            most: most.max(1),
            inside: Mutex::default(),
        })
    }

    /// A connection comes in.
    pub fn enter(self: &Arc<Self>) -> (Place, Notice) {
        let (told, notice) = oneshot::channel();
        let mut inside = self.inside.lock();
        while inside.all.len() >= self.most {
            if let Some((_, oldest)) = inside.all.pop_first() {
                // One that proves itself just now has to go all the same, or does not hear it.
                _ = oldest.send(());
            }
        }
        let number = inside.next;
        inside.next += 1;
        inside.all.insert(number, told);
        drop(inside);
        let room = self.clone();
        (Place { room, number }, Notice(Some(notice)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.inside.lock().all.remove(&self.number);
    }
}

impl Notice {
    /// Ready when the connection has to go; never, once its place was given up. May be dropped and called again.
    pub async fn given(&mut self) {
        if let Some(notice) = &mut self.0 {
            let given = notice.await.is_ok();
            self.0 = None;
            if given {
                return;
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn has_to_go(notice: &mut Notice) -> bool {
        notice.given().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_has_to_go_and_one_that_is_proven_stays() {
        let room = Room::of(2);
        let (first, mut of_first) = room.enter();
        let (_second, mut of_second) = room.enter();
        assert!(!has_to_go(&mut of_first));
        // It has proven itself, and so there is room for a third one.
        drop(first);
        let (_third, mut of_third) = room.enter();
        assert!(!has_to_go(&mut of_second));
        let (_fourth, mut of_fourth) = room.enter();
        assert!(has_to_go(&mut of_second));
        assert!(!has_to_go(&mut of_third) && !has_to_go(&mut of_fourth));
    }
}
