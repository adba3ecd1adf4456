//! What a place says no to is an error, and never an archive that has less in it.

use super::*;
use parking_lot::Mutex;
use std::io;
use wal::retention::Keep;

/// Objects of which some folders are not listed, as in a bucket that refuses it.
struct Refusing {
    inner: Arc<dyn Objects>,
    /// Part of the folders' names; empty: none is refused.
    folder: Mutex<String>,
}

impl Refusing {
    fn ask(&self, folder: &str) -> io::Result<()> {
        let refused = self.folder.lock();
        match !refused.is_empty() && folder.contains(&**refused) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    }
}

impl Objects for Refusing {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.inner.put(name, bytes)
    }

    fn put_pieces(
        &self,
        name: &str,
        len: u64,
        piece: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        self.inner.put_pieces(name, len, piece)
    }

    fn read(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read(name, buf, offset)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.inner.len(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.ask(folder)?;
        self.inner.list(folder)
    }

    fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
        self.ask(&format!("{folder}/"))?;
        self.inner.folders(folder)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
}

fn denied<T: std::fmt::Debug>(what: &str, done: Result<T>) {
    match done {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_listing_that_fails_is_no_empty_archive() {
    let mut w = World::new();
    w.write(1, 20);
    w.checkpoint(20);
    w.write(21, 40);
    w.back_up(1).unwrap();
    let refusing = Arc::new(Refusing {
        inner: w.place.clone(),
        folder: Mutex::default(),
    });
    w.place = refusing.clone();
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    let before = archive.listing().unwrap();
    for folder in ["/wal", "/checkpoint", "/times", "/"] {
        refusing.folder.lock().clone_from(&folder.to_owned());
        denied(folder, archive.listing());
        denied(folder, archive.prune(9, Keep::Bases(1)));
        denied(folder, w.copy(2));
        let to = format!("/never{folder}");
        denied(folder, w.restore(&to, Target::Time(5)));
        if folder == "/wal" || folder == "/" {
            denied(folder, archive.segments(TERM));
            denied(folder, archive.missing(TERM, w.dir.log()));
            denied(folder, archive.reaches_back_to(TERM, 9));
            denied(folder, archive.log_above(TERM, at(20)).map(drop));
        }
        if folder == "/" {
            denied(folder, archive.terms());
            denied(folder, clusters(&*w.place));
        }
    }
    refusing.folder.lock().clear();
    assert_eq!(archive.listing().unwrap(), before);
    // It goes on when the place lists again.
    w.copy(3).unwrap();
}

/// A term begins where the history leaves the newest older term that is in the archive. Terms between the two may have archived nothing.
#[test]
fn a_term_begins_where_the_history_leaves_what_is_archived() {
    let mut w = World::new();
    w.write(1, 24);
    w.back_up(1000).unwrap();
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    assert_eq!(
        archive.begins(TERM).unwrap(),
        None,
        "the first begins at no position"
    );
    let history = [(1, Position::ZERO), (2, at(20)), (3, at(22))];
    for (term, begins) in &history[1..] {
        w.dir.add_term(*term, *begins).unwrap();
    }
    w.log.set_term(3);
    w.write(25, 40);
    w.checkpoint(40);
    w.back_up(2000).unwrap();
    assert_eq!(
        archive.begins(3).unwrap(),
        Some(at(20)),
        "term 2 lost what is above"
    );
    // It is noted once.
    archive
        .note_begin(3, &[(1, Position::ZERO), (3, at(23))])
        .unwrap();
    assert_eq!(archive.begins(3).unwrap(), Some(at(20)));
    // The next term follows one that is in the archive.
    let history = [&history[..], &[(4, at(41))]].concat();
    archive.note_begin(4, &history).unwrap();
    assert_eq!(archive.begins(4).unwrap(), Some(at(41)));
}

/// Where the newer term has nothing of a moment or a position, an older term stands for neither.
#[test]
fn what_lies_in_a_newer_term_is_not_restored_from_an_older_one() {
    let mut w = World::new();
    w.write(1, 24);
    w.back_up(1000).unwrap();
    w.dir.add_term(2, at(20)).unwrap();
    w.dir.add_term(3, at(22)).unwrap();
    w.log.set_term(3);
    w.write(25, 40);
    w.checkpoint(40);
    w.dir.prune(at(40)).unwrap();
    w.write(41, 44);
    w.back_up(2000).unwrap();
    for (to, target) in [
        // Term 2 did not take it over from term 1.
        ("/21", Target::Position(at(21))),
        ("/24", Target::Position(at(24))),
        ("/30", Target::Position(at(30))),
    ] {
        let why = w.restore(to, target).unwrap_err();
        assert!(matches!(why, Error::NotOurs { .. }), "{to}: {why}");
        assert!(w.disk.read(&Path::new(to).join("CANON_VERSION")).is_err());
    }
    for (to, target, n) in [
        ("/20", Target::Position(at(20)), 20),
        ("/before", Target::Time(1999), 20),
        ("/44", Target::Position(at(44)), 44),
        ("/after", Target::Time(2000), 44),
    ] {
        w.restore(to, target).unwrap();
        assert_eq!(w.found(to), wanted(n), "{to}");
    }
}
