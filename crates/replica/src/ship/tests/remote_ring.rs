//! The ring in memory of both: alone, with a writer that is not what it should be, and over thousands of schedules.

use super::*;
use crate::read::SharedMemory;
use env::sync::atomic::AtomicU64;
use std::sync::Arc;

type Memory = Arc<[AtomicU64]>;

/// A ring of so many words, both sides.
fn pair(words: usize) -> (RemoteRing<SharedMemory<Memory>>, Ringside<Memory>, Memory) {
    let memory: Memory = (0..FIRST + words).map(|_| AtomicU64::new(0)).collect();
    let writer = RemoteRing::new(SharedMemory(memory.clone()), FIRST + words);
    (writer, Ringside::new(memory.clone()), memory)
}

/// Frame `n` as head and body, which show whether they are whole.
fn frame(n: u64, words: usize) -> (Vec<u8>, Vec<u8>) {
    (vec![n as u8; 3], n.to_le_bytes().repeat(words))
}

fn whole(n: u64, words: usize) -> Vec<u8> {
    let (head, body) = frame(n, words);
    [head, body].concat()
}

#[cfg(not(feature = "shuttle"))]
mod alone {
    use super::*;
    use crate::read::RemoteMemory;
    use proptest::prelude::*;

    #[test]
    fn frames_come_out_in_order_round_and_round() {
        let (mut w, mut r, _) = pair(64);
        let mut out = vec![1];
        assert_eq!(r.next(&mut out), Ok(false));
        assert!(out.is_empty());
        for n in 0..1000 {
            let words = n as usize % 11;
            let (head, body) = frame(n, words);
            let end = w.put(&head, &body).expect("there is room");
            assert_eq!(r.next(&mut out), Ok(false), "before the bell");
            r.told(end).expect("a bell");
            assert_eq!(r.next(&mut out), Ok(true));
            assert_eq!(out, whole(n, words));
        }
        let end = w.put(&[], &[]).expect("there is room");
        r.told(end).expect("a bell");
        assert_eq!((r.next(&mut out), out.len()), (Ok(true), 0));
    }

    #[test]
    fn what_has_no_room_is_refused_and_goes_in_when_there_is() {
        let (mut w, mut r, _) = pair(16);
        let mut out = Vec::new();
        // Each is 4 words: its lengths, its head, and 2.
        let put = |w: &mut RemoteRing<_>, n| {
            let (head, body) = frame(n, 2);
            w.put(&head, &body)
        };
        let ends: Vec<_> = (0..5).map(|n| put(&mut w, n)).collect();
        assert_eq!(ends, [Some(4), Some(8), Some(12), Some(16), None]);
        // One bell for all of them.
        r.told(16).expect("a bell");
        assert_eq!(r.next(&mut out), Ok(true));
        assert_eq!(put(&mut w, 4), Some(20));
        assert_eq!(put(&mut w, 5), None);
        for n in 1..5 {
            r.told(20).expect("a bell");
            assert_eq!((r.next(&mut out), &out), (Ok(true), &whole(n, 2)));
        }
        assert_eq!(r.next(&mut out), Ok(false));
        let (head, body) = frame(1, 7);
        assert_eq!(w.put(&head, &body), None, "more than half of the ring");
        let (head, body) = frame(1, 6);
        assert_eq!(w.put(&head, &body), Some(28), "half of it");
    }

    #[test]
    fn an_overrun_is_found_and_nothing_of_it_taken() {
        let (mut w, mut r, _) = pair(16);
        let mut out = Vec::new();
        for n in 0..5 {
            // A writer that does not look.
            w.taken = w.written;
            let (head, body) = frame(n, 2);
            let end = w.put(&head, &body).expect("it thinks that there is room");
            _ = r.told(end);
        }
        assert!(r.next(&mut out).is_err() && out.is_empty());
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let bells = [(1, 0), (1, 18), (0, u64::MAX)];
        for (taken, bell) in bells {
            let (mut w, mut r, _) = pair(16);
            let mut out = Vec::new();
            if taken == 1 {
                let end = w.put(&[], &[]).expect("room");
                r.told(end).expect("a bell");
                assert_eq!(r.next(&mut out), Ok(true));
            }
            assert!(r.told(bell).is_err(), "{bell}");
        }
        // A bell for what was not written.
        let (_, mut r, _) = pair(16);
        r.told(4).expect("it may be");
        assert!(r.next(&mut Vec::new()).is_err());
        // The reader's count is not believed when it goes back, or beyond what was written.
        for wrong in [0, 100] {
            let (mut w, mut r, memory) = pair(16);
            for n in 0..6 {
                let (head, body) = frame(n, 2);
                let end = w.put(&head, &body).expect("room");
                r.told(end).expect("a bell");
                assert_eq!(r.next(&mut Vec::new()), Ok(true));
            }
            memory[TAKEN].store(wrong, Ordering::SeqCst);
            let (head, body) = frame(9, 2);
            let last = (0..4).map(|_| w.put(&head, &body)).last();
            assert_eq!(last, Some(None), "{wrong}");
            memory[TAKEN].store(24, Ordering::SeqCst);
            assert_eq!(w.put(&head, &body), None, "it stays broken");
        }
    }

    #[test]
    fn an_answer_that_takes_its_time_is_for_a_later_frame() {
        /// As over a network card: the second look finds it.
        struct Slow(SharedMemory<Memory>);
        impl RemoteMemory for Slow {
            fn read(&self, words: Vec<u32>) -> Reading {
                let (now, mut first) = (self.0.read(words), true);
                let mut now = Some(now);
                Box::pin(std::future::poll_fn(move |c| {
                    if std::mem::take(&mut first) {
                        return Poll::Pending;
                    }
                    now.as_mut().expect("asked once").as_mut().poll(c)
                }))
            }
        }
        impl WritableMemory for Slow {
            fn write(&self, word: usize, bytes: &[u8]) {
                self.0.write(word, bytes);
            }
        }
        let memory: Memory = (0..FIRST + 16).map(|_| AtomicU64::new(0)).collect();
        let mut w = RemoteRing::new(Slow(SharedMemory(memory.clone())), FIRST + 16);
        let mut r = Ringside::new(memory);
        for n in 0..4 {
            let (head, body) = frame(n, 2);
            r.told(w.put(&head, &body).expect("room")).expect("a bell");
            assert_eq!(r.next(&mut Vec::new()), Ok(true));
        }
        let (head, body) = frame(4, 2);
        assert_eq!(w.put(&head, &body), None, "asked");
        assert_eq!(w.put(&head, &body), Some(20), "and answered");
    }

    #[test]
    fn one_who_maps_and_words_that_are_not_there() {
        let (_, _, memory) = pair(16);
        let shared = SharedMemory(memory);
        let mut context = Context::from_waker(Waker::noop());
        shared.write(3, &7u64.to_le_bytes());
        let read = |words: Vec<u32>| shared.read(words);
        let Poll::Ready(values) = read(vec![3, 4]).as_mut().poll(&mut context) else {
            panic!("it is here");
        };
        assert_eq!(values.expect("values"), [7, 0]);
        let none = read(vec![3, 48]).as_mut().poll(&mut context);
        assert!(matches!(none, Poll::Ready(Err(_))));
    }

    proptest! {
        /// Whatever stands in the memory and whatever bells ring, a reader ends with frames or an error.
        #[test]
        fn memory_of_anybody_never_panics(
            words in proptest::collection::vec(prop_oneof![0u64..40, any::<u64>()], FIRST + 16),
            bells in proptest::collection::vec(prop_oneof![0u64..40, any::<u64>()], 1..6),
        ) {
            let memory: Memory = words.into_iter().map(AtomicU64::new).collect();
            let mut r = Ringside::new(memory);
            let mut out = Vec::new();
            for bell in bells {
                if r.told(bell).is_err() {
                    break;
                }
                while let Ok(true) = r.next(&mut out) {
                    prop_assert!(out.len() <= 16 * 8);
                }
            }
        }
    }
}

#[cfg(feature = "shuttle")]
mod interleavings {
    //! Two processes are two threads here: the primary's writer, with bells and messages in one order, and the replica's reader.
    use super::*;
    use env::sync::{Mutex, thread};
    use std::collections::VecDeque;

    enum Sent {
        Bell(u64),
        Message(u64),
    }

    const FRAMES: u64 = 6;

    fn words(n: u64) -> usize {
        1 + n as usize % 2
    }

    /// `careless`: without the second look. `blind`: a writer that writes over what was not taken.
    fn scenario(careless: bool, blind: bool) {
        let (mut w, mut r, _) = pair(8);
        r.careless = careless;
        let connection = Arc::new(Mutex::new(VecDeque::new()));
        let sent = connection.clone();
        let writer = thread::spawn(move || {
            for n in 0..FRAMES {
                if blind {
                    w.taken = w.written;
                }
                let (head, body) = frame(n, words(n));
                let next = w.put(&head, &body).map_or(Sent::Message(n), Sent::Bell);
                sent.lock().push_back(next);
            }
        });
        let (mut next, mut out) = (0, Vec::new());
        while next < FRAMES {
            let heard = connection.lock().pop_front();
            match heard {
                None => thread::yield_now(),
                Some(Sent::Message(n)) => {
                    assert_eq!(n, next, "both media keep one order");
                    next += 1;
                }
                Some(Sent::Bell(end)) => {
                    let mut taken = r.told(end).and_then(|()| r.next(&mut out));
                    while taken == Ok(true) {
                        assert_eq!(out, whole(next, words(next)), "a frame is torn");
                        next += 1;
                        taken = r.next(&mut out);
                    }
                    if taken.is_err() {
                        assert!(blind, "{taken:?}");
                        break;
                    }
                }
            }
        }
        writer.join().expect("the writer");
    }

    #[test]
    fn all_frames_are_taken_whole_and_in_order() {
        shuttle::check_pct(|| scenario(false, false), 6_000, 4);
        shuttle::check_random(|| scenario(false, false), 3_000);
    }

    #[test]
    fn of_a_writer_that_overruns_nothing_torn_is_taken() {
        shuttle::check_pct(|| scenario(false, true), 6_000, 4);
        shuttle::check_random(|| scenario(false, true), 3_000);
    }

    #[test]
    #[should_panic(expected = "torn")]
    fn without_the_second_look_a_torn_frame_is_found() {
        shuttle::check_pct(|| scenario(true, true), 60_000, 4);
    }
}
