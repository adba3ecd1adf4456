//! Two who write at once what only one may have: unique keys, and parents that go while a child comes. Optimistic commits against
//! each other and against transactions that lock; the answers are 23505 and 23503, and what is there afterwards is one of the two.

use super::*;

/// A transaction that locks from the beginning (0), or only after so many runs.
fn runs(optimistic: i64) -> TransactionOptions {
    TransactionOptions {
        optimistic_runs: optimistic as u32,
        ..TransactionOptions::default()
    }
}

/// Both begin together; what each came to.
fn at_once<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let barrier = Barrier::new(2);
    std::thread::scope(|s| {
        let other = s.spawn(|| {
            barrier.wait();
            b()
        });
        barrier.wait();
        let one = a();
        (one, other.join().unwrap())
    })
}

/// Exactly one of a child and of what takes its parent away is done; the other breaks the foreign key.
fn one_of_them(round: i64, child: &Result<(), Error>, parent: &Result<bool, Error>) {
    match (child, parent) {
        (Ok(()), Err(e)) | (Err(e), Ok(true)) => {
            assert_eq!(e.code(), SqlState::FOREIGN_KEY_VIOLATION, "{e}")
        }
        other => panic!("round {round}: {other:?}"),
    }
}

/// The same key given to a row by three at once, looked at when they commit: one of them keeps it.
#[test]
fn three_who_insert_one_deferred_key() {
    let db = Database::temporary().unwrap();
    let made = "CREATE TABLE late (id int PRIMARY KEY, k int UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    db.execute(made, ()).unwrap();
    for round in 0..200i64 {
        let barrier = Barrier::new(3);
        let won: u64 = std::thread::scope(|s| {
            let threads: Vec<_> = (0..3i64)
                .map(|n| {
                    let (db, barrier) = (&db, &barrier);
                    s.spawn(move || {
                        barrier.wait();
                        let done = db.transaction_with::<_, Error>(&runs((round + n) % 3), |tx| {
                            tx.execute("INSERT INTO late VALUES ($1, $2)", (round * 3 + n, round))
                        });
                        match done {
                            Ok(_) => 1,
                            Err(e) => {
                                assert_eq!(e.code(), SqlState::UNIQUE_VIOLATION, "{e}");
                                0
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(won, 1, "round {round}");
    }
}

/// Many threads insert the same unique or primary keys, optimistic ones and ones that lock: each key is taken once, and only 23505
/// is refused.
#[test]
fn two_who_insert_one_unique_key() {
    let db = shop();
    for round in 0..200i64 {
        let barrier = Barrier::new(3);
        let won: u64 = std::thread::scope(|s| {
            let threads: Vec<_> = (0..3i64)
                .map(|n| {
                    let (db, barrier) = (&db, &barrier);
                    s.spawn(move || {
                        barrier.wait();
                        let base = 1000 + round * 3;
                        let (id, owner) = match round % 2 {
                            0 => (base + n, format!("unique {round}")),
                            _ => (base, format!("unique {round} {n}")),
                        };
                        let done = db.transaction_with::<_, Error>(&runs((round + n) % 3), |tx| {
                            tx.table("accounts")?.insert((id, &owner, 0, None::<&str>))
                        });
                        match done {
                            Ok(_) => 1,
                            Err(e) => {
                                assert_eq!(e.code(), SqlState::UNIQUE_VIOLATION, "{e}");
                                0
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(won, 1, "round {round}");
    }
    let rows = db
        .read(|tx| tx.table("accounts")?.scan(..).rows::<Account>())
        .unwrap();
    assert_eq!(rows.len(), 205);
    let mut owners: Vec<_> = rows.iter().map(|r| &r.1).collect();
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 205);
}

/// A commit of many rows looks at the locks on its first one long before it is ordered; who comes to lock that row in between sees
/// that it is taken.
#[test]
fn a_primary_key_in_a_big_commit_against_one_under_locks() {
    let db = shop();
    for round in 0..60i64 {
        let base = 10_000 + 1000 * round;
        let commits = AtomicBool::new(false);
        let insert = |tx: &canon::database::Transaction, rows: i64| {
            let t = tx.table("accounts")?;
            let mut ids = base..base + rows;
            ids.try_for_each(|id| t.insert((id, format!("{id} of {rows}"), 0, None::<&str>)))
        };
        let (big, small) = std::thread::scope(|s| {
            let big = s.spawn(|| {
                db.transaction_with::<_, Error>(&runs(3), |tx| {
                    let inserted = insert(tx, 500);
                    commits.store(true, Ordering::Release);
                    inserted
                })
            });
            let small = s.spawn(|| {
                while !commits.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                (0..round * 500).for_each(|_| std::hint::spin_loop());
                db.transaction_with::<_, Error>(&runs(0), |tx| insert(tx, 1))
            });
            (big.join().unwrap(), small.join().unwrap())
        });
        match (big, small) {
            (Ok(()), Err(e)) | (Err(e), Ok(())) => {
                assert_eq!(e.code(), SqlState::UNIQUE_VIOLATION, "{e}")
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
}

/// A row takes a unique key back that it had before, while another takes the same key: one of them. Its entry is still in the
/// index, for the snapshot that stays open, so that it is not by the linking of the entry that the commit is known to take a key.
#[test]
fn a_unique_key_taken_back_against_one_taken_anew() {
    let db = shop();
    for round in 0..200i64 {
        let (id, key) = (1000 + 2 * round, format!("key {round}"));
        db.transaction(|tx| tx.table("accounts")?.insert((id, &key, 0, None::<&str>)))
            .unwrap();
        let rename = |to: &str| {
            let to = to.to_owned();
            move |tx: &canon::database::Transaction| {
                tx.table("accounts")?
                    .update(id, |_: Account| row! { owner: to.clone() })
            }
        };
        let (first, second) = (runs(round % 3), runs((round + 1) % 3));
        let (renamed, inserted) = db
            .read(|tx| {
                assert!(tx.table("accounts")?.contains(id)?);
                db.transaction(rename(&format!("other {round}"))).unwrap();
                let another = (id + 1, &key, 0, None::<&str>);
                Ok(at_once(
                    || db.transaction_with::<_, Error>(&first, rename(&key)),
                    || {
                        db.transaction_with::<_, Error>(&second, |tx| {
                            tx.table("accounts")?.insert(another)
                        })
                    },
                ))
            })
            .unwrap();
        match (renamed, inserted) {
            (Ok(true), Err(e)) | (Err(e), Ok(())) => {
                assert_eq!(e.code(), SqlState::UNIQUE_VIOLATION, "{e}")
            }
            other => panic!("round {round}: {other:?}"),
        }
        let rows = db
            .read(|tx| tx.table("accounts")?.scan(id..).rows::<Account>())
            .unwrap();
        assert_eq!(rows.iter().filter(|a| a.1 == key).count(), 1, "{rows:?}");
    }
}

/// The key taken back, without a race: another has taken the key by the time that the first one commits.
#[test]
fn a_unique_key_taken_back_too_late() {
    let db = shop();
    let rename = |to: &'static str| {
        move |tx: &canon::database::Transaction| {
            tx.table("accounts")?
                .update(1, |_: Account| row! { owner: to })
        }
    };
    let refused = db.read(|tx| {
        assert!(tx.table("accounts")?.contains(1)?);
        db.transaction(rename("other"))?;
        let mut taken = false;
        Ok(db.transaction(|tx| {
            rename("o1")(tx)?;
            if !std::mem::replace(&mut taken, true) {
                db.transaction(|tx| tx.table("accounts")?.insert((9, "o1", 0, None::<&str>)))?;
            }
            Ok(())
        }))
    });
    let e = refused.unwrap().unwrap_err();
    assert_eq!(e.code(), SqlState::UNIQUE_VIOLATION, "{e}");
}

/// A child comes while its parent goes: exactly one of them, never a child without a parent.
#[test]
fn child_against_parent() {
    let db = shop();
    for round in 0..150i64 {
        let id = 10 + round;
        let owner = format!("p{id}");
        db.transaction(|tx| tx.table("accounts")?.insert((id, &owner, 0, None::<&str>)))
            .unwrap();
        let locking = runs(round % 2);
        let (child, parent) = at_once(
            || db.transaction(|tx| tx.table("orders")?.insert((id, 1, "x"))),
            || db.transaction_with(&locking, |tx| tx.table("accounts")?.delete(id)),
        );
        one_of_them(round, &child, &parent);
        let there = |table: &str| {
            db.read(|tx| tx.table(table)?.scan(prefix(id)).rows::<Vec<Value>>())
                .unwrap()
                .len()
        };
        assert_eq!(there("orders") > 0, child.is_ok());
        assert_eq!(there("accounts") > 0, parent.is_err());
    }
}

/// A row's referenced unique key changes under locks while a child comes by it: one of them.
#[test]
fn child_against_a_parent_that_changes_its_key() {
    let db = shop();
    let notes = TableBuilder::new("notes")
        .column("owner", Type::Text)
        .column("number", Type::Int4)
        .primary_key(["owner", "number"])
        .references_with(
            ["owner"],
            "accounts",
            &["owner"],
            FkAction::NoAction,
            FkAction::NoAction,
        );
    db.create_table(notes).unwrap();
    for round in 0..150i64 {
        let (id, owner) = (10 + round, format!("p{round}"));
        db.transaction(|tx| tx.table("accounts")?.insert((id, &owner, 0, None::<&str>)))
            .unwrap();
        let locking = runs(round % 2);
        let gone = |_: Account| row! { owner: format!("gone {round}") };
        let (child, parent) = at_once(
            || db.transaction(|tx| tx.table("notes")?.insert((&owner, 1))),
            || db.transaction_with(&locking, |tx| tx.table("accounts")?.update(id, gone)),
        );
        one_of_them(round, &child, &parent);
    }
}
