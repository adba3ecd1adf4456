//! `canon verify` over whole directories, and over each kind of damage.

use super::common::Server;
use super::helpers::*;
use super::{canon, text};
use base::record::{CommitBuilder, RecordKind};
use base::{Position, Value};
use canon::{Database, DatabaseOptions};
use env::Env;
use node::recovery::Recovery;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use txn::Catalog;
use wal::{DataDir, DirOptions, LogWriter, Progress};

const TABLES: &str = "
    CREATE TABLE parents (id int PRIMARY KEY, code text NOT NULL UNIQUE, n bigint UNIQUE);
    CREATE TABLE children (id int PRIMARY KEY, parent int REFERENCES parents, n int REFERENCES parents (n), size int CHECK (size < 10));
    CREATE TABLE keyless (v int NOT NULL);
    INSERT INTO parents SELECT g, 'code ' || g, g * 10 FROM generate_series(1, 20) g;
    INSERT INTO children SELECT g, g, g * 10, g % 10 FROM generate_series(1, 15) g;
    INSERT INTO children VALUES (16, NULL, NULL, NULL);
    INSERT INTO keyless VALUES (1), (1)";

fn options() -> DatabaseOptions {
    let mut options = DatabaseOptions::default();
    options.node.segment_bytes = 1 << 16;
    options
}

/// A database with some segments of log above its checkpoint, and all of the log below it.
fn made() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("data");
    let open = || Database::open(&path, options()).expect("a database");
    let fill = |db: &Database, n: i32| {
        let sql = "INSERT INTO bulk SELECT $1 + g, repeat('x', 1000) FROM generate_series(1, 50) g";
        db.execute(sql, n * 50).expect("rows");
    };
    let db = open();
    for sql in TABLES.split(';') {
        db.execute(sql, ()).expect(sql);
    }
    db.execute("CREATE TABLE bulk (id int PRIMARY KEY, x text)", ())
        .expect("a table");
    (0..5).for_each(|n| fill(&db, n));
    drop(db);
    let kept: Vec<_> = files(&path.join("wal"), ".wal")
        .into_iter()
        .map(|f| (fs::read(&f).expect("a segment"), f))
        .collect();
    let db = open();
    db.checkpoint().expect("a checkpoint");
    (5..10).for_each(|n| fill(&db, n));
    drop(db);
    // The checkpoint has made them superfluous.
    let gone: Vec<_> = kept.iter().filter(|(_, f)| !f.exists()).collect();
    assert!(gone.len() > 3, "{gone:?}");
    for (bytes, file) in gone {
        fs::write(file, bytes).expect("written");
    }
    (scratch, path)
}

fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).expect("a folder");
    let all = all.map(|e| e.expect("an entry").path());
    let mut all: Vec<PathBuf> = all
        .filter(|p| {
            let name = p.file_name().expect("a name").to_string_lossy();
            name.ends_with(end) && !name.starts_with("spare")
        })
        .collect();
    all.sort();
    all
}

fn verify(path: &Path) -> (bool, String) {
    canon(&["verify", "--data", text(path)])
}

/// What is said is wrong of this file.
fn damaged(path: &Path, file: &Path) -> String {
    let (fine, said) = verify(path);
    assert!(!fine, "{said}");
    let wanted = format!("damaged: {} at offset", file.display());
    assert!(said.contains(&wanted), "{wanted}:\n{said}");
    said
}

fn flip(file: &Path, at: u64) {
    let mut bytes = fs::read(file).expect("a file");
    bytes[at as usize] ^= 0x10;
    fs::write(file, bytes).expect("written");
}

/// All files with their bytes.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for d in [dir.to_owned(), dir.join("wal"), dir.join("checkpoint")] {
        for e in fs::read_dir(&d).expect("a folder") {
            let p = e.expect("an entry").path();
            if p.is_file() {
                all.push((p.clone(), fs::read(&p).expect("a file")));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_whole_directory_is_whole_and_nothing_is_changed() {
    let (_scratch, path) = made();
    let before = content(&path);
    let (fine, said) = verify(&path);
    assert!(fine && said.contains("nothing is wrong"), "{said}");
    assert!(said.contains("538 rows of 4 tables"), "{said}");
    assert!(content(&path) == before, "something was changed");
    // While a server works there nobody looks.
    let db = Database::open(&path, options()).expect("it is whole");
    let (fine, said) = verify(&path);
    assert!(!fine && said.contains("another process is using"), "{said}");
    drop(db);
    let (fine, said) = verify(&path.join("nowhere"));
    assert!(!fine && said.contains("not a data directory"), "{said}");
    // A torn end above the anchor is the normal end of a crash; so are half-made files.
    let last = files(&path.join("wal"), ".wal").pop().expect("segments");
    let mut bytes = fs::read(&last).expect("a segment");
    let end = bytes.iter().rposition(|b| *b != 0).expect("groups") + 1;
    let end = end.next_multiple_of(8);
    let head = bytes[128..188].to_vec();
    bytes[end..end + 60].copy_from_slice(&head);
    fs::write(&last, bytes).expect("written");
    fs::write(path.join("checkpoint").join("0000000000000009.tmp"), "half").expect("written");
    let (fine, said) = verify(&path);
    assert!(fine && said.contains("the normal end of a crash"), "{said}");
    assert!(said.contains("is half-made"), "{said}");
    let (fine, said) = canon(&["verify", "--repair", "--data", text(&path)]);
    assert!(fine && said.contains("was half-made: removed"), "{said}");
    assert!(
        !path
            .join("checkpoint")
            .join("0000000000000009.tmp")
            .exists()
    );
}

#[test]
fn each_damaged_byte_is_found_where_it_is() {
    let (_scratch, path) = made();
    let segments = files(&path.join("wal"), ".wal");
    assert!(segments.len() > 5, "{segments:?}");
    let checkpoint = files(&path.join("checkpoint"), ".ckpt")
        .pop()
        .expect("a checkpoint");
    let size = fs::metadata(&checkpoint).expect("a file").len();
    let inner = &segments[segments.len() - 2];
    let mut places = vec![(segments[0].clone(), 20), (segments[0].clone(), 200)];
    places.extend([
        (inner.clone(), 3),
        (inner.clone(), 300),
        (inner.clone(), 5000),
    ]);
    places.extend([8, 150, size / 2, size - 20].map(|at| (checkpoint.clone(), at)));
    for (file, at) in places {
        let good = fs::read(&file).expect("a file");
        flip(&file, at);
        let said = damaged(&path, &file);
        assert_eq!(
            said.matches("damaged: ").count(),
            1,
            "{}, byte {at}: {said}",
            file.display()
        );
        fs::write(&file, good).expect("written");
    }
    // Several at once are all found.
    for file in [&segments[0], inner, &checkpoint] {
        flip(file, 200);
    }
    let (_, said) = verify(&path);
    assert_eq!(said.matches("damaged: ").count(), 3, "{said}");
    for file in [&segments[0], inner, &checkpoint] {
        flip(file, 200);
    }
    assert!(verify(&path).0);
}

#[test]
fn what_is_missing_and_what_does_not_fit_is_found() {
    let (_scratch, path) = made();
    let segments = files(&path.join("wal"), ".wal");
    let inner = &segments[segments.len() - 2];
    let last = &segments[segments.len() - 1];
    let away = path.join("away");
    // In the middle.
    fs::rename(inner, &away).expect("renamed");
    let said = damaged(&path, last);
    assert!(
        said.contains("which should come before it, is missing"),
        "{said}"
    );
    fs::rename(&away, inner).expect("renamed");
    // The log does not reach back to the checkpoint.
    let checkpoint = files(&path.join("checkpoint"), ".ckpt")
        .pop()
        .expect("a checkpoint");
    fs::rename(&checkpoint, &away).expect("renamed");
    let anchor = path.join("CANON_ANCHOR");
    let said = damaged(&path, &anchor);
    assert!(
        said.contains("checkpoint 1"),
        "the log is whole, and the anchor asks for it: {said}"
    );
    fs::rename(&segments[0], path.join("first")).expect("renamed");
    let (fine, said) = verify(&path);
    assert!(
        !fine && said.contains("the log begins after position"),
        "{said}"
    );
    fs::rename(path.join("first"), &segments[0]).expect("renamed");
    fs::rename(&away, &checkpoint).expect("renamed");
    // The end: only the anchor knows that there was more.
    let good = fs::read(last).expect("a segment");
    let end = good.iter().rposition(|b| *b != 0).expect("groups") as u64;
    flip(last, end);
    let said = damaged(&path, &anchor);
    assert!(
        said.contains("by this anchor the log had reached"),
        "{said}"
    );
    fs::remove_file(last).expect("removed");
    let said = damaged(&path, &anchor);
    assert!(said.contains("is missing"), "{said}");
    fs::write(last, good).expect("written");
    let kept = fs::read(&anchor).expect("an anchor");
    fs::write(&anchor, "garbage").expect("written");
    damaged(&path, &anchor);
    fs::write(&anchor, kept).expect("written");
    assert!(verify(&path).0);
    // Terms that the groups are not of, and files that are no text.
    let terms = path.join("CANON_TERMS");
    let good = fs::read(&terms).ok();
    fs::write(&terms, "2 0.0\n").expect("written");
    let (fine, said) = verify(&path);
    assert!(
        !fine && said.contains("of term 1, which the history does not have"),
        "{said}"
    );
    fs::write(&terms, "1 0.0\n2 1.0\n").expect("written");
    let (fine, said) = verify(&path);
    assert!(
        !fine && said.contains("are not where term 1 ruled"),
        "{said}"
    );
    fs::write(&terms, "garbage").expect("written");
    let said = damaged(&path, &terms);
    assert!(
        said.contains("rows of 4 tables"),
        "the rest is read all the same: {said}"
    );
    match good {
        Some(good) => fs::write(&terms, good).expect("written"),
        None => fs::remove_file(&terms).expect("removed"),
    }
    let version = path.join("CANON_VERSION");
    let good = fs::read(&version).expect("a file");
    fs::write(&version, "garbage").expect("written");
    damaged(&path, &version);
    fs::write(&version, good).expect("written");
    assert!(verify(&path).0);
}

/// Rows for the log: table, key and row, made with the catalog at hand.
type Rows = Vec<(u32, Vec<u8>, Option<Vec<u8>>)>;

/// Appends a commit to the log behind everybody's back.
fn smuggle(path: &Path, rows: impl FnOnce(&Catalog) -> Rows) {
    let dir = DataDir::open(&Env::os(), path, DirOptions::default()).expect("a directory");
    let recovery = Recovery::new(Arc::default(), Arc::default(), 1);
    let found = wal::recover(&dir, &recovery, 1, &Progress::default()).expect("whole");
    let catalog = recovery.rows_alone(found.last).expect("readable");
    let mut b = CommitBuilder::new();
    for (storage, key, row) in rows(&catalog) {
        let kind = match row {
            Some(_) => RecordKind::Put,
            None => RecordKind::Delete,
        };
        b.push(kind, storage, &key, &row.unwrap_or_default());
    }
    let position = Position::new(found.last.epoch() + 1, 0);
    let (heads, data) = b.finish(position, 0);
    let mut log = LogWriter::resume(dir.log().clone(), &found.end, found.end.term).expect("a log");
    let commit = wal::Commit {
        position,
        heads,
        data,
    };
    log.append_group(&[commit], found.last).expect("written");
    log.sync().expect("synced");
}

/// A row of a table under the key of its values, or under another one.
fn row(
    c: &Catalog,
    table: &str,
    values: &[Value],
    key: Option<&[u8]>,
) -> (u32, Vec<u8>, Option<Vec<u8>>) {
    let mut tables = c.tables.values();
    let t = tables.find(|t| t.name() == table).expect("a table");
    let (mut own, mut bytes) = (Vec::new(), Vec::new());
    match key {
        Some(key) => own = key.to_vec(),
        None => t.primary_key(values, &mut own).expect("a key"),
    }
    let version = t.table.def.row_version;
    t.table
        .layout
        .encode(version, values, &mut bytes)
        .expect("a row");
    (t.storage.id, own, Some(bytes))
}

#[test]
fn rows_that_break_a_promise_are_found_by_table_and_key() {
    let (_scratch, path) = made();
    let (int, text) = (Value::Int4, Value::text);
    let long = Value::Int8;
    smuggle(&path, |c| {
        let parents = |v: &[Value]| row(c, "parents", v, None);
        let children = |v: &[Value]| row(c, "children", v, None);
        let mut broken = row(c, "parents", &[int(37), text("x"), Value::Null], None);
        broken.2 = Some(vec![7; 3]);
        let mut elsewhere = parents(&[int(38), text("y"), Value::Null]);
        elsewhere.1 = parents(&[int(39), text("y"), Value::Null]).1;
        vec![
            parents(&[int(31), text("code 3"), Value::Null]),
            parents(&[int(32), text("free"), long(40)]),
            parents(&[int(33), Value::Null, Value::Null]),
            broken,
            elsewhere,
            children(&[int(41), int(999), Value::Null, int(1)]),
            children(&[int(42), int(2), int(5), int(1)]),
            children(&[int(43), int(2), int(50), int(10)]),
            row(c, "keyless", &[Value::Null], Some(&99u64.to_be_bytes())),
            // Its children stay.
            (
                row(c, "parents", &[int(1), text(""), Value::Null], None).0,
                row(c, "parents", &[int(1), text(""), Value::Null], None).1,
                None,
            ),
        ]
    });
    let (fine, said) = verify(&path);
    for wanted in [
        "table public.parents, row (id)=(31): it has the same key of the unique index parents_code_key as row (id)=(3)",
        "table public.parents, row (id)=(32): it has the same key of the unique index parents_n_key as row (id)=(4)",
        "table public.parents, row (id)=(33): column code is NULL and must not be",
        "table public.parents, row with the key 80000025: its bytes are no row of this table",
        "table public.parents, row (id)=(38): it stands under the key of another row",
        "table public.children, row (id)=(41): foreign key children_parent_fkey: (parent)=(999) is not in table parents",
        "table public.children, row (id)=(42): foreign key children_n_fkey: (n)=(5) is not in table parents",
        "table public.children, row (id)=(43): it violates the check constraint children_size_check",
        "table public.keyless, row number 0000000000000063: column v is NULL and must not be",
        "table public.children, row (id)=(1): foreign key children_parent_fkey: (parent)=(1) is not in table parents",
        "table public.children, row (id)=(1): foreign key children_n_fkey: (n)=(10) is not in table parents",
        "11 problems",
    ] {
        assert!(!fine && said.contains(wanted), "{wanted}:\n{said}");
    }
    let (fine, said) = canon(&["verify", "--repair", "--data", super::text(&path)]);
    assert!(!fine && said.contains("nothing was repaired"), "{said}");
}

#[test]
fn what_is_superfluous_is_repaired_and_nothing_else_is() {
    let repair = |path: &Path| canon(&["verify", "--repair", "--data", text(path)]);
    let rows = |path: &Path| {
        let db = Database::open(path, options()).expect("it starts");
        let (count,): (i64,) = db.query("SELECT count(*) FROM bulk", ()).expect("rows")[0];
        count
    };
    let newest = |path: &Path| files(&path.join("checkpoint"), ".ckpt").pop().expect("one");
    // Log that the newest checkpoint does not need.
    let (_scratch, path) = made();
    let first = files(&path.join("wal"), ".wal").remove(0);
    flip(&first, 300);
    let (fine, said) = repair(&path);
    assert!(fine && said.contains("was superfluous: moved to"), "{said}");
    assert!(
        path.join("damaged")
            .join(first.file_name().expect("a name"))
            .exists()
    );
    assert_eq!(rows(&path), 500);
    // The newest checkpoint, where the log tells all the same.
    let (_scratch, path) = made();
    let checkpoint = newest(&path);
    flip(&checkpoint, 300);
    let (fine, said) = repair(&path);
    assert!(fine && said.contains("was superfluous: moved to"), "{said}");
    assert_eq!(rows(&path), 500);
    // Both: either alone would be enough, together they are not.
    let (_scratch, path) = made();
    let (checkpoint, first) = (newest(&path), files(&path.join("wal"), ".wal").remove(0));
    flip(&checkpoint, 300);
    flip(&first, 300);
    let before = content(&path);
    let (fine, said) = repair(&path);
    assert!(!fine && said.contains("nothing was repaired"), "{said}");
    assert!(content(&path) == before, "something was changed");
    // Log above the checkpoint, and the end of the log.
    for from_end in [2, 1] {
        let (_scratch, path) = made();
        let mut segments = files(&path.join("wal"), ".wal");
        let inner = segments.remove(segments.len() - from_end);
        // The first group of the last one is followed by another, which was written when it was durable.
        flip(&inner, 300);
        let before = content(&path);
        let (fine, said) = repair(&path);
        match fine {
            true => assert!(said.contains("the normal end of a crash"), "{said}"),
            false => assert!(said.contains("nothing was repaired"), "{said}"),
        }
        assert!(content(&path) == before, "something was changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_read_whole() {
    if skip() {
        return;
    }
    let archive = tempfile::tempdir().expect("a directory");
    let url = format!("file://{}", archive.path().display());
    let s = Server::start_with(&[("CANON_ARCHIVE", &url), ("CANON_SEGMENT_BYTES", "1MB")]).await;
    let c = s.connect().await;
    rows(&c, "CREATE TABLE bulk (id int PRIMARY KEY, x text)").await;
    for n in 0..12 {
        let sql = format!(
            "INSERT INTO bulk SELECT {n} * 1000 + g, repeat('x', 1000) FROM generate_series(1, 500) g"
        );
        rows(&c, &sql).await;
        if n == 3 {
            rows(&c, "CHECKPOINT").await;
        }
    }
    let cluster = || fs::read_dir(archive.path()).ok()?.next()?.ok();
    let folder = |what: &str| {
        let term = fs::read_dir(cluster()?.path()).ok()?.next()?.ok()?;
        Some(
            files(&term.path().join(what), "")
                .into_iter()
                .filter(|f| f.extension() != Some("tmp".as_ref()))
                .collect::<Vec<_>>(),
        )
    };
    let deadline = std::time::Instant::now() + super::common::PATIENCE;
    let enough = |what: &str, n: usize| {
        folder_exists(archive.path(), what) && folder(what).is_some_and(|f| f.len() >= n)
    };
    while !enough("wal", 4) || !enough("checkpoint", 1) {
        assert!(std::time::Instant::now() < deadline, "{}", s.log_tail());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    drop(s);
    let look = || canon(&["verify", "--archive", text(archive.path())]);
    let (fine, said) = look();
    assert!(
        fine && said.contains("a directory can be made of a checkpoint"),
        "{said}"
    );
    assert!(said.contains("rows of 1 tables"), "{said}");
    let segments = folder("wal").expect("segments");
    let checkpoint = folder("checkpoint")
        .expect("checkpoints")
        .pop()
        .expect("one");
    for (file, at) in [
        (&segments[1], 5000),
        (&segments[2], 10),
        (&checkpoint, 3000),
    ] {
        flip(file, at);
        let (fine, said) = look();
        let wanted = format!("damaged: {} at offset", file.display());
        assert!(!fine && said.contains(&wanted), "{said}");
        flip(file, at);
    }
    // Objects that are cut short are named, too.
    for file in [&segments[1], &segments[2], &checkpoint] {
        let bytes = fs::read(file).expect("it is there");
        // A segment ends with room for more.
        let most = match file == &checkpoint {
            true => bytes.len() - 5,
            false => bytes.len() / 2,
        };
        for left in [0, 20, bytes.len() / 3, most] {
            fs::write(file, &bytes[..left]).expect("cut short");
            let (fine, said) = look();
            let wanted = format!("damaged: {} at offset", file.display());
            assert!(!fine && said.contains(&wanted), "{left}: {said}");
        }
        fs::write(file, &bytes).expect("put back");
    }
    assert!(look().0);
    fs::remove_file(&segments[2]).expect("removed");
    let (fine, said) = look();
    assert!(
        !fine && said.contains("which should come before it, is missing"),
        "{said}"
    );
}

fn folder_exists(archive: &Path, what: &str) -> bool {
    let first = |d: &Path| Some(fs::read_dir(d).ok()?.next()?.ok()?.path());
    first(archive)
        .and_then(|c| first(&c))
        .is_some_and(|t| t.join(what).exists())
}
