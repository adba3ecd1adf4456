//! A copy of a directory that changes under it: whatever happens between two of its reads, the copy is whole, and has all that was durable
//! when it began.

mod common;

use base::Position;
use common::*;
use env::{DirLock, Disk, DiskFile, MemDisk, OpenMode};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wal::copy::copy_dir;
use wal::{DataDir, LogWriter};

/// A disk that lets something happen before an operation of a given number.
struct Meddled {
    disk: MemDisk,
    counted: Arc<AtomicU64>,
    at: u64,
    /// Done once.
    act: Arc<Mutex<Option<Act>>>,
}

type Act = Box<dyn FnOnce() + Send>;

impl Meddled {
    fn tick(&self) {
        if self.counted.fetch_add(1, Ordering::SeqCst) == self.at
            && let Some(act) = self.act.lock().take()
        {
            act();
        }
    }
}

struct MeddledFile {
    file: Arc<dyn DiskFile>,
    disk: Arc<Meddled>,
}

struct Door(Arc<Meddled>);

impl Disk for Door {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.0.tick();
        let file = self.0.disk.open(path, mode)?;
        let disk = self.0.clone();
        Ok(Arc::new(MeddledFile { file, disk }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.disk.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.tick();
        self.0.disk.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.disk.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.disk.sync_dir(dir)
    }
    fn lock_dir(&self, dir: &Path) -> io::Result<DirLock> {
        self.0.disk.lock_dir(dir)
    }
}

impl DiskFile for MeddledFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.tick();
        // A read that is not one: what is written meanwhile shows in its second half.
        let half = buf.len() / 2;
        let n = self.file.read_at(&mut buf[..half.max(1)], offset)?;
        self.disk.tick();
        if n < half.max(1) || half == 0 {
            return Ok(n);
        }
        Ok(n + self.file.read_at(&mut buf[n..], offset + n as u64)?)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

/// A directory with a server at work: commits 1 to `n`, each durable.
struct Work {
    dir: DataDir,
    log: LogWriter,
    n: u32,
}

impl Work {
    fn start(disk: &MemDisk) -> Work {
        let (dir, _, recovered) = recover(Arc::new(disk.clone())).unwrap();
        let log = writer(&dir, &recovered).unwrap();
        let mut work = Work { dir, log, n: 0 };
        work.commits(12);
        work.checkpoint();
        work.commits(9);
        work
    }

    fn commits(&mut self, more: u32) {
        for _ in 0..more {
            self.n += 1;
            self.log
                .append_group(&[commit(self.n, 300)], at(self.n - 1))
                .unwrap();
            self.log.sync().unwrap();
        }
    }

    fn checkpoint(&mut self) {
        let mut c = self.dir.begin_checkpoint(at(self.n)).unwrap();
        for n in 1..=self.n {
            c.put(1, at(n), &n.to_be_bytes(), Some(b"row")).unwrap();
        }
        c.finish(at(self.n)).unwrap();
        self.dir.prune(Position::MAX).unwrap();
    }
}

fn to() -> PathBuf {
    PathBuf::from("/copy")
}

/// How far a start of the copy comes.
fn last_of(disk: &MemDisk) -> u32 {
    let env = env_on(Arc::new(disk.clone()));
    let dir = DataDir::open(&env, &to(), small()).unwrap();
    let sink = Memory::default();
    let found = wal::recover(&dir, &sink, 1, &wal::Progress::default()).unwrap();
    found.last.order()
}

/// At each step of the copy, each of these happens.
#[test]
fn whatever_happens_meanwhile_the_copy_is_whole() {
    let acts: [(&str, fn(&mut Work)); 4] = [
        ("a commit", |w| w.commits(1)),
        ("many commits, and new segments", |w| w.commits(40)),
        ("a checkpoint", |w| w.checkpoint()),
        ("commits, a checkpoint, and segments used again", |w| {
            w.commits(20);
            w.checkpoint();
            w.commits(30);
            w.checkpoint();
            w.commits(30);
        }),
    ];
    let mut began_anew = 0;
    for (what, act) in acts {
        for step in 0.. {
            let disk = MemDisk::new();
            let work = Arc::new(Mutex::new(Work::start(&disk)));
            let durable = work.lock().n;
            let (counted, w) = (Arc::new(AtomicU64::new(0)), work.clone());
            let act: Act = Box::new(move || act(&mut w.lock()));
            let pending = Arc::new(Mutex::new(Some(act)));
            let door: Arc<dyn Disk> = Arc::new(Door(Arc::new(Meddled {
                disk: disk.clone(),
                counted,
                at: step,
                act: pending.clone(),
            })));
            let copied = copy_dir(&door, &root(), &to(), &|_| ());
            let copied = copied.unwrap_or_else(|e| panic!("{what} at step {step}: {e}"));
            let last = last_of(&disk);
            assert!(
                last >= durable,
                "{what} at step {step}: {last} of {durable}"
            );
            assert_eq!(copied.last.order(), last, "{what} at step {step}");
            began_anew += copied.tries;
            if pending.lock().is_some() {
                assert!(step > 20, "the copy has many steps");
                break;
            }
        }
    }
    assert!(began_anew > 10, "segments went under the copy");
}

/// A copy that begins a term must not tell the nodes of the original.
#[test]
fn addresses_of_other_nodes_stay_behind() {
    let disk = MemDisk::new();
    let _work = Work::start(&disk);
    put_file(&disk, &root().join("CANON_NODES"), b"10.0.0.2:5432\n");
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    copy_dir(&shared, &root(), &to(), &|_| ()).unwrap();
    let there = disk.list(&to()).unwrap();
    assert!(there.contains(&"CANON_VERSION".to_owned()), "{there:?}");
    assert!(!there.contains(&"CANON_NODES".to_owned()), "{there:?}");
}

#[test]
fn a_damaged_source_is_no_backup() {
    let disk = MemDisk::new();
    let work = Work::start(&disk);
    let path = segment_path(&work.dir, work.dir.log().list().unwrap().len() - 1);
    let mut bytes = disk.read(&path).unwrap();
    // The first group of the last segment; those behind it bear witness.
    bytes[140] ^= 1;
    put_file(&disk, &path, &bytes);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let e = copy_dir(&shared, &root(), &to(), &|_| ()).err().unwrap();
    assert!(
        matches!(&e, wal::Error::Corrupt { file, .. } if *file == path),
        "{e}"
    );
    let again = copy_dir(&shared, &root(), &to(), &|_| ()).err().unwrap();
    assert!(again.to_string().contains("a folder of its own"), "{again}");
}
