//! Whose directory it is, and who may work on it.

mod common;

use common::*;
use env::{Disk, Env, OsDisk};
use std::sync::Arc;
use wal::{DataDir, DirOptions, Error};

#[test]
fn a_second_process_is_refused() {
    let path = std::env::temp_dir().join(format!("wal-data-dir-{}", std::process::id()));
    let env = Env::os();
    let first = DataDir::open(&env, &path, DirOptions::default()).unwrap();
    let error = DataDir::open(&env, &path, DirOptions::default())
        .err()
        .unwrap();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains("another process"));
    let cluster = first.cluster();
    assert!(first.created() && cluster != 0);
    drop(first);
    let again = DataDir::open(&env, &path, DirOptions::default()).unwrap();
    assert!(!again.created());
    assert_eq!(again.cluster(), cluster);
    drop(again);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let (_, disk) = mem();
    disk.create_dir_all(&root()).unwrap();
    put_file(&*disk, &root().join("holiday.jpg"), b"...");
    let error = open(disk.clone()).err().unwrap();
    assert!(
        matches!(error, Error::NotOurs { .. }) && error.to_string().contains("holiday.jpg"),
        "{error}"
    );
    assert!(
        !disk
            .list(&root())
            .unwrap()
            .contains(&"CANON_VERSION".to_owned())
    );

    // Ours, but its version file is gone: not to be taken for a new one.
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    writer(&dir, &recovered)
        .unwrap()
        .append_group(&[commit(1, 1)], at(0))
        .unwrap();
    drop(dir);
    disk.remove(&root().join("CANON_VERSION")).unwrap();
    assert!(matches!(open(disk), Err(Error::NotOurs { .. })));
}

#[test]
fn newer_formats_other_clusters_and_nonsense_are_refused() {
    let (_, disk) = mem();
    let version = root().join("CANON_VERSION");
    drop(open(disk.clone()).unwrap());
    let text = String::from_utf8(disk.read(&version).unwrap()).unwrap();
    assert_eq!(text, "canon 1\ncluster 00000000000000000000000000c0ffee\n");

    let other = DirOptions {
        cluster: Some(1),
        ..small()
    };
    let error = DataDir::open(&env_on(disk.clone()), &root(), other)
        .err()
        .unwrap();
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");

    put_file(
        &*disk,
        &version,
        text.replace("canon 1", "canon 2").as_bytes(),
    );
    let error = open(disk.clone()).err().unwrap();
    assert!(
        matches!(
            error,
            Error::NewerFormat {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );

    for nonsense in [
        "",
        "canon",
        "canon x\n",
        "canon 1\n",
        "canon 1\ncluster 12\n",
        "postgres 15",
    ] {
        put_file(&*disk, &version, nonsense.as_bytes());
        let error = open(disk.clone()).err().unwrap();
        assert!(
            matches!(error, Error::Corrupt { .. }),
            "{nonsense:?}: {error}"
        );
    }
}

#[test]
fn the_lock_file_has_the_documented_name() {
    let path = std::env::temp_dir().join(format!("wal-lock-{}", std::process::id()));
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let dir = DataDir::open(
        &Env::os().with_disk(disk.clone()),
        &path,
        DirOptions::default(),
    )
    .unwrap();
    assert_eq!(
        disk.list(&path).unwrap(),
        ["CANON_VERSION", "canon.lock", "checkpoint", "wal"]
    );
    drop(dir);
    std::fs::remove_dir_all(&path).unwrap();
}
