//! Turns for transactions that lost: a session that has been told to try again (40001, 40P01) begins its next transaction blocks when
//! there is a place among the few that try again at one time.
//!
//! The client runs its transaction again at once, and so do the others that lost; all together they lose again, since each
//! commit dooms whoever has read what it changed. A few at a time, they win. Nothing is promised: a wait ends after [`PATIENCE`],
//! with a place or without, so that a client that thinks in the middle of its transaction does not stop the others.
//!
//! Left out on purpose: sessions that have not lost. They do not wait, and this costs them nothing.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The longest wait for a place.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// How many try again at one time: four for each core, so that some run while others' clients think, or wait for one another or the disk.
pub fn places() -> usize {
    4 * std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Transactions of a session that take turns after one was told to try again: where one is lost the next ones are likely to be, and who
/// stops too soon only learns it again by losing.
pub const STICKY: u8 = 120;

/// The places, and who waits for one, first come first served.
pub struct Turns {
    places: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    next: u64,
    waiting: VecDeque<(u64, Waker)>,
}

/// A place; given back when dropped.
pub struct Turn(Arc<Turns>);

/// Ready when there is a place.
pub struct TurnWait {
    turns: Arc<Turns>,
    number: Option<u64>,
}

impl Turns {
    pub fn new(places: usize) -> Arc<Turns> {
        Arc::new(Turns {
            places,
            state: Mutex::default(),
        })
    }

    /// Waits for a place.
    pub fn wait(self: &Arc<Turns>) -> TurnWait {
        TurnWait {
            turns: self.clone(),
            number: None,
        }
    }
}

impl State {
    fn first(&self) -> Option<Waker> {
        self.waiting.front().map(|w| w.1.clone())
    }
}

impl Future for TurnWait {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        let turns = self.turns.clone();
        let mut s = turns.state.lock();
        let mine = self.number;
        let first = s.waiting.front().is_none_or(|w| Some(w.0) == mine);
        if first && s.taken < turns.places {
            if mine.is_some() {
                s.waiting.pop_front();
            }
            s.taken += 1;
            self.number = None;
            // There may be more than one place.
            let next = (s.taken < turns.places).then(|| s.first()).flatten();
            drop(s);
            next.iter().for_each(Waker::wake_by_ref);
            return Poll::Ready(Turn(turns));
        }
        match s.waiting.iter_mut().find(|w| Some(w.0) == mine) {
            Some(w) => w.1.clone_from(cx.waker()),
            None => {
                s.next += 1;
                let number = s.next;
                s.waiting.push_back((number, cx.waker().clone()));
                self.number = Some(number);
            }
        }
        Poll::Pending
    }
}

impl Drop for TurnWait {
    fn drop(&mut self) {
        if let Some(n) = self.number {
            let mut s = self.turns.state.lock();
            s.waiting.retain(|w| w.0 != n);
            let next = s.first();
            drop(s);
            next.iter().for_each(Waker::wake_by_ref);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut s = self.0.state.lock();
        s.taken -= 1;
        let next = s.first();
        drop(s);
        next.iter().for_each(Waker::wake_by_ref);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn places_are_given_in_order_and_come_back() {
        let turns = Turns::new(2);
        let a = turns.wait().now_or_never().expect("a free place");
        let _b = turns.wait().now_or_never().expect("another");
        let (mut c, mut d) = (turns.wait(), turns.wait());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(c.poll_unpin(&mut cx).is_pending());
        assert!(d.poll_unpin(&mut cx).is_pending());
        drop(a);
        assert!(d.poll_unpin(&mut cx).is_pending(), "it is not the first");
        let c = c.poll_unpin(&mut cx);
        assert!(c.is_ready());
        drop(d);
        assert!(turns.state.lock().waiting.is_empty());
        drop(c);
        assert!(turns.wait().now_or_never().is_some());
    }
}
