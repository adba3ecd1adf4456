//! Retention, carried out: what stays restores every moment of the time that is kept, also after a removal that breaks off.

use super::*;
use std::sync::{Mutex, MutexGuard};
use wal::retention::{self, Keep};

/// Between two steps of a history.
const STEP: u64 = 1000;
const KEPT: u64 = 8 * STEP;

/// A planted fault belongs to the process: one history at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// A directory whose log is backed up at each step, with checkpoints and terms at random.
struct History {
    w: World,
    dice: u64,
    now: u64,
    n: u32,
    term: u64,
    /// The last commit at each step.
    seen: Vec<(u64, u32)>,
}

impl History {
    fn new(seed: u64) -> History {
        History {
            w: World::new(),
            dice: seed,
            now: 100 * STEP,
            n: 0,
            term: TERM,
            seen: Vec::new(),
        }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005);
        self.dice = self.dice.wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33).is_multiple_of(n)
    }

    fn step(&mut self) {
        self.now += STEP;
        let more = 4 + (self.dice >> 40) as u32 % 9;
        self.w.write(self.n + 1, self.n + more);
        self.n += more;
        if self.one_in(3) {
            self.w.checkpoint(self.n);
            self.w.write(self.n + 1, self.n + 2);
            self.n += 2;
        }
        if self.one_in(9) {
            self.term += 1;
            self.w.dir.add_term(self.term, at(self.n)).unwrap();
            self.w.log.set_term(self.term);
            self.w.write(self.n + 1, self.n + 3);
            self.n += 3;
        }
        let now = self.now;
        let done = self.w.copy(now).unwrap();
        if !self.one_in(3) {
            check(&self.archive(), &done, false, &|| now, &|_| {}).unwrap();
        }
        self.seen.push((now, self.n));
    }

    fn archive(&self) -> Archive {
        Archive::new(self.w.place.clone(), self.w.dir.cluster())
    }

    /// Restores each moment that is kept from this place. What the first of them lacks.
    fn restore_all(&self, place: &Arc<dyn Objects>) -> std::result::Result<usize, String> {
        let first = (self.now - KEPT).max(self.seen[0].0);
        let moments = self.seen.iter().map(|s| s.0).filter(|t| *t > first);
        let moments: Vec<u64> = std::iter::once(first).chain(moments).collect();
        for time in &moments {
            let n = self.seen.iter().rfind(|s| s.0 <= *time).unwrap().1;
            let (_, disk) = mem();
            let made = restore(
                &env_on(disk.clone()),
                place,
                self.w.dir.cluster(),
                Path::new("/to"),
                Target::Time(*time),
                small().log,
                &|_| {},
            );
            made.map_err(|e| format!("{time} of {first} to {}: {e}", self.now))?;
            let dir = DataDir::open(&env_on(disk), Path::new("/to"), any()).unwrap();
            let (sink, recovered) = recover_dir(&dir).unwrap();
            let found = (recovered.end.last, rows_of(&sink));
            if found != wanted(n) {
                return Err(format!("{time}: {found:?} and not {:?}", wanted(n)));
            }
        }
        Ok(moments.len())
    }
}

/// How many objects went in this many steps; else which moment is lost.
fn goes_by(seed: u64, steps: u32) -> std::result::Result<usize, String> {
    let (mut h, mut gone) = (History::new(seed), 0);
    for _ in 0..steps {
        h.step();
        gone += h.archive().prune(h.now, Keep::Time(KEPT)).unwrap();
        h.restore_all(&h.w.place)?;
    }
    let bases: usize = h
        .archive()
        .listing()
        .unwrap()
        .iter()
        .map(|t| t.bases.len())
        .sum();
    assert!(
        bases <= 2 * (KEPT / STEP) as usize,
        "seed {seed}: {bases} bases are left"
    );
    Ok(gone)
}

#[test]
fn every_moment_of_the_kept_time_is_restored() {
    let _alone = alone();
    for seed in 1..=4 {
        let gone = goes_by(seed, 40).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(gone > 40, "seed {seed}: only {gone} objects went");
    }
}

#[cfg(feature = "faults")]
#[test]
fn a_base_that_is_needed_and_goes_is_found() {
    let _alone = alone();
    env::fault::plant("backup.prune_needed", true);
    let lost = goes_by(1, 40);
    env::fault::plant("backup.prune_needed", false);
    let why = lost.unwrap_err();
    assert!(why.contains("the archive"), "{why}");
}

#[test]
fn a_removal_that_breaks_off_leaves_what_is_kept_and_the_next_one_goes_on() {
    let _alone = alone();
    let mut h = History::new(7);
    for _ in 0..20 {
        h.step();
    }
    let cluster = h.w.dir.cluster();
    let on = |disk: Arc<dyn Disk>| -> Arc<dyn Objects> {
        Arc::new(Files::new(disk, Path::new("/place")))
    };
    let mut broken = 0;
    loop {
        let disk = h.w.mem.fork();
        let faulty = faulty(&disk);
        faulty.crash_at(broken + 1);
        let over = Archive::new(on(Arc::new(faulty)), cluster);
        let done = over.prune(h.now, Keep::Time(KEPT)).is_ok();
        let place = on(Arc::new(disk));
        // Not each one, for the sake of time.
        if broken.is_multiple_of(5) || done {
            h.restore_all(&place)
                .unwrap_or_else(|e| panic!("broken at {broken}: {e}"));
        }
        let again = Archive::new(place, cluster);
        again.prune(h.now, Keep::Time(KEPT)).unwrap();
        let left = again.listing().unwrap();
        let nothing = retention::removal(&left, h.now, Keep::Time(KEPT));
        assert_eq!(nothing, retention::Removal::default(), "broken at {broken}");
        if done {
            break;
        }
        broken += 1;
    }
    assert!(broken > 10, "{broken}");
}

/// A checkpoint in the archive that was never read whole, or is not readable, does not let the one before it go.
#[test]
fn nothing_goes_before_a_newer_base_was_read_whole() {
    let mut w = World::new();
    w.write(1, 20);
    w.checkpoint(20);
    w.write(21, 24);
    w.back_up(1).unwrap();
    w.checkpoint(24);
    w.write(25, 30);
    let done = w.copy(2).unwrap();
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    assert_eq!(archive.prune(2, Keep::Bases(1)).unwrap(), 0);
    // It is damaged on its way: that is found, and not noted.
    let folder = format!("{:032x}/{TERM:020}/checkpoint", w.dir.cluster());
    let newest = w.place.list(&folder).unwrap().into_iter().max().unwrap();
    let name = format!("{folder}/{newest}");
    let len = w.place.len(&name).unwrap();
    let mut bytes = vec![0; len as usize];
    assert_eq!(w.place.read(&name, &mut bytes, 0).unwrap(), bytes.len());
    let mut damaged = bytes.clone();
    damaged[len as usize / 2] ^= 1;
    for (bad, what) in [
        (&damaged[..], "a flipped bit"),
        (&bytes[..bytes.len() - 9], "a lost end"),
    ] {
        w.place.put(&name, bad).unwrap();
        let why = check(&archive, &done, false, &|| 3, &|_| {}).unwrap_err();
        assert!(matches!(why, Error::Corrupt { .. }), "{what}: {why}");
        assert_eq!(archive.prune(3, Keep::Bases(1)).unwrap(), 0, "{what}");
    }
    w.place.put(&name, &bytes).unwrap();
    check(&archive, &done, false, &|| 4, &|_| {}).unwrap();
    assert!(archive.prune(4, Keep::Bases(1)).unwrap() > 0);
    assert_eq!(archive.checkpoints(TERM).unwrap(), [2]);
    w.restore("/new", Target::End).unwrap();
    assert_eq!(w.found("/new"), wanted(30));
}

/// Log that was removed stays removed, though the directory still has it.
#[test]
fn what_was_removed_is_not_archived_again() {
    let mut w = World::new();
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    for n in 0..3 {
        let last = n * 22;
        w.write(last + 1, last + 20);
        w.checkpoint(last + 20);
        w.write(last + 21, last + 21);
        w.back_up(u64::from(n)).unwrap();
        w.write(last + 22, last + 22);
        // As a primary does.
        for (name, _) in archive.missing(TERM, w.dir.log()).unwrap() {
            assert!(archive.copy_segment(TERM, w.dir.log(), name).unwrap());
        }
    }
    assert!(archive.prune(3, Keep::Bases(1)).unwrap() > 3);
    assert!(w.dir.log().list().unwrap().len() > archive.segments(TERM).unwrap().len() + 2);
    assert!(archive.missing(TERM, w.dir.log()).unwrap().is_empty());
}
