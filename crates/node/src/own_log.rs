//! A replica's own log, written on a thread of its own, so that replay and readers never wait for this node's disk.
//!
//! The follower leaves groups here in order; the thread appends whatever has gathered, syncs once, and raises *persisted*. At most
//! `QUEUE_BYTES` wait: a disk that is slower than the stream for longer holds the follower up in the end, and the ring is overrun.
//!
//! Where nothing waits for *persisted*, as the primary says (`ship::Message::Acks`), the thread lets groups gather for a moment between two syncs.

use base::Position;
use env::Env;
use parking_lot::{Condvar, Mutex};
use replica::ReplicaMarks;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wal::{Group, LogWriter};

use crate::notice::Notice;

/// Bytes of groups that may wait for the disk.
const QUEUE_BYTES: u64 = 64 << 20;

/// Bytes appended before a sync.
const SYNC_BYTES: u64 = 4 << 20;

/// How long groups gather that nothing waits for.
const GATHER: Duration = Duration::from_millis(10);

/// How often a write to a full disk is tried again.
const RETRY: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Queue {
    /// A group, or none for positions without a commit; and up to where everything is known then.
    entries: VecDeque<(Option<Group>, Position)>,
    bytes: u64,
    end: End,
}

/// What is asked of the thread.
#[derive(Clone, Copy, Default, PartialEq)]
enum End {
    #[default]
    Open,
    /// Nothing more comes.
    Closed,
    /// The node stops: what is not written by then is asked for again.
    Stopped,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct OwnLog {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Something waits for what gathers, or much has gathered, or the end has come.
    hurried: Condvar,
    /// Nothing waits for *persisted*.
    at_leisure: AtomicBool,
    /// A group waits for room on the disk.
    full: AtomicBool,
    /// Everything up to here is written, and may not be durable.
    appended: base::Watermark,
}

impl OwnLog {
    /// Everything up to `upto` is to be logged: what is in this group. Waits while too much waits for the disk.
    pub fn push(&self, group: Option<Group>, upto: Position) {
        let bytes = group.as_ref().map_or(0, |g| g.as_bytes().len() as u64);
        let mut q = self.queue.lock();
        while bytes > 0 && q.bytes > QUEUE_BYTES && q.end == End::Open {
            self.changed.wait(&mut q);
        }
        match q.entries.back_mut() {
            // Ticks between two groups count as one.
            Some((None, last)) if group.is_none() => *last = upto,
            _ => q.entries.push_back((group, upto)),
        }
        q.bytes += bytes;
        self.changed.notify_all();
        if q.bytes >= SYNC_BYTES {
            self.hurried.notify_all();
        }
    }

    /// Whether nothing waits for *persisted*.
    pub fn be_at_leisure(&self, whether: bool) {
        if self.at_leisure.swap(whether, Ordering::SeqCst) && !whether {
            let _seen = self.queue.lock();
            self.hurried.notify_all();
        }
    }

    /// Lets groups gather, unless something waits for them.
    fn gather_for(&self, at_most: Duration) {
        let mut q = self.queue.lock();
        while self.at_leisure.load(Ordering::SeqCst) && q.end == End::Open && q.bytes < SYNC_BYTES {
            if self.hurried.wait_for(&mut q, at_most).timed_out() {
                break;
            }
        }
    }

    /// Whether [`OwnLog::push`] would not wait.
    pub fn has_room(&self) -> bool {
        self.queue.lock().bytes <= QUEUE_BYTES
    }

    /// Nothing more comes: the thread ends when it has written what is here.
    pub fn close(&self) {
        self.end(End::Closed);
    }

    /// The thread ends, and need not wait for a disk that is full.
    pub fn stop(&self) {
        self.end(End::Stopped);
    }

    fn end(&self, how: End) {
        let mut q = self.queue.lock();
        if q.end != End::Stopped {
            q.end = how;
        }
        self.changed.notify_all();
        self.hurried.notify_all();
    }

    /// Up to where the log goes, durable or not.
    pub fn appended(&self) -> Position {
        self.appended.get()
    }

    /// Whether what came waits for room on the disk.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// The thread. Gives the log back when all that came is in it.
    pub fn run(
        &self,
        mut log: LogWriter,
        marks: &ReplicaMarks,
        moved: &Notice,
        env: &Env,
    ) -> Option<LogWriter> {
        let _whole = env::say::Whole("writing the log of a replica");
        while self.wait() {
            let upto = self.append(&mut log, env)?;
            sync(&mut log, upto, marks, moved);
            self.gather_for(GATHER);
        }
        Some(log)
    }

    /// Until something has come; false at the end.
    fn wait(&self) -> bool {
        let mut q = self.queue.lock();
        while q.entries.is_empty() {
            if q.end != End::Open {
                return false;
            }
            self.changed.wait(&mut q);
        }
        true
    }

    /// Writes what has gathered, up to `SYNC_BYTES`. Up to where the log goes now; none: nothing was there, or the node stops before there
    /// is room.
    pub fn append(&self, log: &mut LogWriter, env: &Env) -> Option<Position> {
        let mut upto = None;
        for (group, last) in self.take() {
            if let Some(group) = group
                && !self.append_group(log, &group, env)
            {
                return None;
            }
            upto = Some(last);
        }
        self.appended.raise(upto?);
        upto
    }

    fn take(&self) -> Vec<(Option<Group>, Position)> {
        let mut q = self.queue.lock();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < SYNC_BYTES
            && let Some(entry) = q.entries.pop_front()
        {
            bytes += entry.0.as_ref().map_or(0, |g| g.as_bytes().len() as u64);
            batch.push(entry);
        }
        q.bytes -= bytes;
        self.changed.notify_all();
        batch
    }

    /// Tries until there is room on the disk; `false` when the node stops before.
    fn append_group(&self, log: &mut LogWriter, group: &Group, env: &Env) -> bool {
        loop {
            match log.append_shipped(group) {
                Ok(_) => {
                    self.full.store(false, Ordering::SeqCst);
                    return true;
                }
                Err(e) if e.is_retryable() => {
                    if !self.full.swap(true, Ordering::SeqCst) {
                        env::alarm!("canon: {e}; this replica's log goes on when there is room");
                    }
                    env.clock.sleep(RETRY);
                    if self.queue.lock().end == End::Stopped {
                        return false;
                    }
                }
                Err(e) => crate::pipeline::die(&e),
            }
        }
    }
}

/// What was written up to here is durable from now on.
pub(crate) fn sync(log: &mut LogWriter, upto: Position, marks: &ReplicaMarks, moved: &Notice) {
    if let Err(e) = log.sync() {
        crate::pipeline::die(&e);
    }
    marks.persisted.raise(upto);
    moved.moved();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Nothing here is about how long it takes: each thread ends, which is the claim.
    #[test]
    fn what_gathers_is_let_go_by_a_hurry_by_much_and_by_the_end() {
        let gathers = |end: fn(&OwnLog)| {
            let log = Arc::new(OwnLog::default());
            log.be_at_leisure(true);
            let mine = log.clone();
            let thread = std::thread::spawn(move || mine.gather_for(Duration::from_secs(3600)));
            end(&log);
            thread.join().expect("it ends");
        };
        gathers(|log| log.be_at_leisure(false));
        gathers(OwnLog::close);
        gathers(OwnLog::stop);
        gathers(|log| {
            log.queue.lock().bytes = SYNC_BYTES;
            log.push(None, Position::ZERO);
        });
    }
}
