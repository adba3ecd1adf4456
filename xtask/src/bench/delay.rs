//! Links that take time: proxies of bytes, each on an address of its own, which hold every piece until it is due.
//!
//! ```text
//! near ──▶ reader, a thread of each direction ──▶ pieces with the time when they are due ──▶ pacer, one thread ──▶ far
//! ```
//! A delay shifts the stream and does not thin it. The pacer sleeps until the first piece of all links is due, and writes what is due by then. A reader
//! wakes it only if its piece is due before that. So a piece costs two wake-ups at most: links are a part of a bench that
//! has to leave the processors to what is measured. [`cpu_seconds`] says what they have cost.
//!
//! Left out on purpose: links that lose or break (`canon::Cluster` has those). An end that does not read what comes holds up the pieces of all
//! links, once the kernel's buffers are full.

use crate::Result;
use std::collections::BinaryHeap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Names of threads of links begin with this.
const THREADS: &str = "link";

/// Nanoseconds of processor time of threads of links that have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Processor time of all links of this process so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let of_links = |at: &std::path::Path| {
        let name = std::fs::read_to_string(at.join("comm")).unwrap_or_default();
        name.starts_with(THREADS)
    };
    let paths = tasks.flatten().map(|t| t.path());
    let living = paths.filter(|at| of_links(at));
    let living: u64 = living.map(|at| nanoseconds(&at.join("schedstat"))).sum();
    (living + ENDED.load(Ordering::Relaxed)) as f64 / 1e9
}

/// The time on a processor, of a `schedstat` of the kernel.
fn nanoseconds(of: &std::path::Path) -> u64 {
    let text = std::fs::read_to_string(of).unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// A thread of a link, whose time counts when it has ended, too.
fn thread(what: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let counted = move || {
        run();
        let used = nanoseconds("/proc/thread-self/schedstat".as_ref());
        ENDED.fetch_add(used, Ordering::Relaxed);
    };
    let builder = std::thread::Builder::new().name(format!("{THREADS} {what}"));
    let spawned = builder.spawn(counted);
    spawned
        .map(drop)
        .map_err(|e| format!("a delayed link: {e}"))
}

/// Bytes on their way; none: the end of the stream.
struct Piece {
    due: Instant,
    /// Pieces of one direction are due in the order in which they came.
    number: u64,
    to: Arc<TcpStream>,
    bytes: Option<Vec<u8>>,
}

impl Piece {
    fn order(&self) -> (std::cmp::Reverse<Instant>, std::cmp::Reverse<u64>) {
        (std::cmp::Reverse(self.due), std::cmp::Reverse(self.number))
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Piece) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Piece {}

impl PartialOrd for Piece {
    fn partial_cmp(&self, other: &Piece) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Piece {
    fn cmp(&self, other: &Piece) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

#[derive(Default)]
struct Waiting {
    /// The first that is due is on top.
    pieces: BinaryHeap<Piece>,
    numbers: u64,
    /// Until when the pacer sleeps; none: it is awake and looks again, or nothing is due and it waits.
    until: Option<Instant>,
}

#[derive(Default)]
struct Pacer {
    waiting: Mutex<Waiting>,
    sooner: Condvar,
}

impl Pacer {
    /// The one of this process.
    fn get() -> Result<&'static Pacer> {
        static PACER: OnceLock<Result<Arc<Pacer>>> = OnceLock::new();
        let started = PACER.get_or_init(|| {
            let pacer = Arc::new(Pacer::default());
            let run = pacer.clone();
            thread("pacer", move || run.run())?;
            Ok(pacer)
        });
        started.as_deref().map_err(String::clone)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn put(&self, due: Instant, to: &Arc<TcpStream>, bytes: Option<Vec<u8>>) {
        let mut w = self.lock();
        w.numbers += 1;
        let (number, to) = (w.numbers, to.clone());
        w.pieces.push(Piece {
            due,
            number,
            to,
            bytes,
        });
        let wakes = w.until.is_none_or(|until| due < until);
        drop(w);
        if wakes {
            self.sooner.notify_one();
        }
    }

    fn run(&self) {
        let mut w = self.lock();
        loop {
            let now = Instant::now();
            match w.pieces.peek().map(|p| p.due) {
                Some(due) if due <= now => {
                    let piece = w.pieces.pop().expect("just seen");
                    drop(w);
                    piece.arrive();
                    w = self.lock();
                }
                Some(due) => {
                    w.until = Some(due);
                    w = (self.sooner.wait_timeout(w, due - now))
                        .map_or_else(|e| e.into_inner().0, |w| w.0);
                    w.until = None;
                }
                None => w = self.sooner.wait(w).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }
}

impl Piece {
    fn arrive(self) {
        let written = match &self.bytes {
            Some(bytes) => (&*self.to).write_all(bytes).is_ok(),
            None => false,
        };
        if !written {
            _ = self.to.shutdown(Shutdown::Both);
        }
    }
}

/// Opens a link to this port whose bytes take `one_way` in each direction; its own port. It lasts as long as the process.
pub fn link(to: u16, one_way: Duration) -> Result<u16> {
    let fail = |e: std::io::Error| format!("a delayed link: {e}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let port = listener.local_addr().map_err(fail)?.port();
    let pacer = Pacer::get()?;
    thread("door", move || {
        for near in listener.incoming().flatten() {
            if let Ok(far) = TcpStream::connect(("127.0.0.1", to)) {
                let (near, far) = (Arc::new(near), Arc::new(far));
                let carried = carry(pacer, near.clone(), far.clone(), one_way);
                _ = carried.and_then(|()| carry(pacer, far, near, one_way));
            }
        }
    })?;
    Ok(port)
}

/// One direction.
fn carry(
    pacer: &'static Pacer,
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
    one_way: Duration,
) -> Result<()> {
    _ = to.set_nodelay(true);
    thread("reader", move || {
        let mut piece = vec![0; 64 << 10];
        loop {
            let n = (&*from).read(&mut piece).unwrap_or(0);
            let due = Instant::now() + one_way;
            let bytes = (n > 0).then(|| piece[..n].to_vec());
            pacer.put(due, &to, bytes);
            if n == 0 {
                break;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_not_before_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound").port();
        let port = link(to, Duration::from_millis(20)).expect("a link");
        let mut near = TcpStream::connect(("127.0.0.1", port)).expect("the link");
        let began = Instant::now();
        near.write_all(b"there").expect("written");
        let (mut far, _) = listener.accept().expect("the other end");
        let mut heard = [0; 5];
        far.read_exact(&mut heard).expect("heard");
        assert_eq!(&heard, b"there");
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert!(cpu_seconds() > 0.0, "it has cost something");
        drop(near);
        assert_eq!(far.read(&mut heard).expect("the end"), 0);
    }

    /// A piece of a short link is due before one that came earlier on a long link.
    #[test]
    fn each_link_keeps_its_own_time_and_the_order_of_its_pieces() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound").port();
        let open = |one_way| {
            let port = link(to, one_way).expect("a link");
            let near = TcpStream::connect(("127.0.0.1", port)).expect("the link");
            (near, listener.accept().expect("the other end").0)
        };
        let (mut long, mut far_of_long) = open(Duration::from_secs(3600));
        let (mut short, mut far_of_short) = open(Duration::from_millis(1));
        long.write_all(b"later").expect("written");
        for n in 0..200u8 {
            short.write_all(&[n]).expect("written");
        }
        let mut heard = [0; 200];
        far_of_short.read_exact(&mut heard).expect("heard");
        assert!(
            heard
                .iter()
                .enumerate()
                .all(|(at, n)| at == usize::from(*n))
        );
        far_of_long.set_nonblocking(true).expect("set");
        let nothing = far_of_long.read(&mut heard).expect_err("not due");
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    }
}
