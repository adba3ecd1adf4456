//! A mark in shared memory that the kernel strikes out when the process that set it ends: whoever maps the memory sees with one load
//! whether the other side lives.
//!
//! A thread writes its number into the mark and names it to the kernel as a robust futex that it holds (`set_robust_list(2)`). However the
//! thread ends, `kill -9` of its process included, the kernel then takes the number out of it, before anybody can learn that the process is
//! gone: a process is reaped after its last thread has ended.
//!
//! Left out on purpose: waiting for the mark to go (FUTEX_WAIT), and systems without robust futexes, which get an error here.

use crate::mapped::MappedWords;
use base::region::Words;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// `struct robust_list`.
#[repr(C)]
struct Entry {
    next: *const Entry,
}

/// `struct robust_list_head`, and the one entry of the list.
#[repr(C)]
struct Head {
    list: Entry,
    /// From an entry to its futex.
    offset: libc::c_long,
    pending: *const Entry,
    entry: Entry,
}

/// What the kernel is told of the head.
const HEAD_BYTES: usize = 3 * size_of::<usize>();
/// Bits of a futex that say who holds it.
const HOLDER: u32 = 0x3fff_ffff;

/// While this is there, and the process, the word is marked.
pub struct Alive {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the word is marked, by whatever process.
#[inline]
pub fn is_marked(word: &AtomicU64) -> bool {
    // The futex is the first four bytes. The kernel changes them with one atomic instruction; a wider load sees them before or after it.
    let bytes = word.load(Ordering::SeqCst).to_ne_bytes();
    let futex = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    futex & HOLDER != 0
}

impl Alive {
    /// Marks this word, which has no other writer.
    pub fn mark(words: MappedWords, word: u32) -> io::Result<Alive> {
        let (end, ended) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let hold = move || hold(&words, word, &tell, &ended);
        let thread = std::thread::Builder::new().name("canon alive".into());
        let thread = thread.stack_size(64 << 10).spawn(hold)?;
        let alive = Alive {
            end: Some(end),
            thread: Some(thread),
        };
        told.recv().expect("the thread says how it went")?;
        Ok(alive)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(t) = self.thread.take() {
            _ = t.join();
        }
    }
}

/// The thread: it holds the mark until it is told to end.
fn hold(
    words: &MappedWords,
    word: u32,
    tell: &mpsc::Sender<io::Result<()>>,
    ended: &mpsc::Receiver<()>,
) {
    let mark = &words.words()[word as usize];
    // For the kernel, which reads it whenever the thread should end.
    let head: *mut Head = Box::into_raw(Box::new(Head {
        list: Entry { next: ptr::null() },
        offset: 0,
        pending: ptr::null(),
        entry: Entry { next: ptr::null() },
    }));
    // SAFETY: `head` is valid and this thread's alone; only addresses of its fields are taken and written.
    unsafe {
        let (list, entry) = (&raw const (*head).list, &raw const (*head).entry);
        (*head).list.next = entry;
        (*head).entry.next = list;
        (*head).offset = ptr::from_ref(mark) as libc::c_long - entry as libc::c_long;
    }
    // SAFETY: takes nothing, and cannot fail.
    let number = unsafe { libc::gettid() } as u32;
    let [a, b, c, d] = (number & HOLDER).to_ne_bytes();
    let held = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
    mark.store(held, Ordering::SeqCst);
    // SAFETY: the list is a valid ring of one entry, whose futex is the mark; both stay until the list is given up below. It takes the
    // place of the list that the C library has for robust mutexes of this thread, which has none.
    let done = unsafe { libc::syscall(libc::SYS_set_robust_list, head, HEAD_BYTES) };
    let done = match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let well = done.is_ok();
    if tell.send(done).is_ok() && well {
        // An error: whoever would end it is gone.
        _ = ended.recv();
    }
    mark.store(0, Ordering::SeqCst);
    // SAFETY: a thread without a list is what it was before its C library gave it one.
    unsafe { libc::syscall(libc::SYS_set_robust_list, ptr::null::<Head>(), HEAD_BYTES) };
    // SAFETY: from the box above; the kernel has let go of it.
    drop(unsafe { Box::from_raw(head) });
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::MAPPED_BYTES;
    use std::fs::File;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    fn path() -> PathBuf {
        std::env::temp_dir().join(format!("canon-alive-{}", std::process::id()))
    }

    fn map(path: &PathBuf) -> MappedWords {
        let mut open = File::options();
        let open = open.read(true).write(true).create(true).truncate(false);
        let file = open.open(path).expect("a file");
        file.set_len(MAPPED_BYTES as u64).expect("a length");
        MappedWords::new(&file).expect("mapped")
    }

    /// The other process of the test below: marks, and waits to be killed.
    #[test]
    fn the_process_that_is_killed() {
        let Ok(path) = std::env::var("CANON_ALIVE_TEST") else {
            return;
        };
        let _alive = Alive::mark(map(&path.into()), 5).expect("robust futexes");
        println!("marked");
        std::thread::sleep(std::time::Duration::from_secs(60));
    }

    #[test]
    fn the_mark_goes_with_the_owner_and_with_its_process() {
        let path = path();
        let words = map(&path);
        let mark = &words.words()[5];
        assert!(!is_marked(mark));
        let alive = Alive::mark(map(&path), 5).expect("robust futexes");
        assert!(is_marked(mark));
        drop(alive);
        assert!(!is_marked(mark));

        let mut other = Command::new(std::env::current_exe().expect("this program"));
        other.args(["--exact", "alive::tests::the_process_that_is_killed"]);
        other.arg("--nocapture").env("CANON_ALIVE_TEST", &path);
        let mut other = other.stdout(Stdio::null()).spawn().expect("a process");
        while !is_marked(mark) {
            let ended = other.try_wait().expect("asked");
            assert!(ended.is_none(), "it ended and marked nothing: {ended:?}");
            std::thread::yield_now();
        }
        other.kill().expect("killed");
        other.wait().expect("reaped");
        assert!(!is_marked(mark), "the kernel has struck it out");
        std::fs::remove_file(&path).expect("removed");
    }
}
