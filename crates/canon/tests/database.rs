//! The embedded library: typed access, constraints and the races on them, transactions that run again, restarts.

use base::schema::FkAction;
use canon::database::prefix;
use canon::{ColumnType, Value, row};
use canon::{Database, DatabaseOptions, Error, SqlState, TableBuilder, TransactionOptions, Type};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use txn::{Durability, Isolation, LockMode, TxnOptions, WaitPolicy};

#[path = "database/races.rs"]
mod races;

fn accounts() -> TableBuilder {
    TableBuilder::new("accounts")
        .column("id", Type::Int8)
        .column("owner", Type::Text)
        .column("balance", Type::Int8)
        .nullable("note", varchar(8))
        .primary_key(["id"])
        .unique(["owner"])
        .index("accounts_by_balance", ["balance"])
}

/// `varchar(n)`; the modifier is PostgreSQL's, four more than the length.
fn varchar(n: i32) -> ColumnType {
    ColumnType {
        ty: Type::Varchar,
        typmod: n + 4,
    }
}

type Account = (i64, String, i64, Option<String>);

fn shop() -> Database {
    let db = Database::temporary().unwrap();
    db.create_table(accounts()).unwrap();
    let orders = TableBuilder::new("orders")
        .column("account", Type::Int8)
        .column("number", Type::Int4)
        .column("item", Type::Text)
        .primary_key(["account", "number"])
        .references(["account"], "accounts");
    db.create_table(orders).unwrap();
    db.transaction(|tx| {
        let t = tx.table("accounts")?;
        (1..=5i64).try_for_each(|i| t.insert((i, format!("o{i}"), 100 * i, None::<String>)))
    })
    .unwrap();
    db
}

fn balance(db: &Database, id: i64) -> Option<i64> {
    db.read(|tx| Ok(tx.table("accounts")?.get::<Account>(id)?.map(|a| a.2)))
        .unwrap()
}

#[test]
fn rows_come_and_go_by_key_and_by_name() {
    let db = shop();
    db.transaction(|tx| {
        let t = tx.table("accounts")?;
        assert!(t.update(1, |(id, owner, b, note): Account| (id, owner, b - 30, note))?);
        assert!(t.update(2, |a: Account| row! { balance: a.2 + 30, note: "thanks" })?);
        assert!(!t.update(9, |a: Account| row! { balance: a.2 })?);
        t.put((3, "o3", 333, "put"))?;
        t.put((6, "o6", 600, None::<&str>))?;
        t.insert(row! { id: 7, owner: "o7", balance: 700 })?;
        assert!(t.delete(5)?);
        assert!(!t.delete(5)?);
        assert!(t.contains(4)? && !t.contains(5)?);
        Ok(())
    })
    .unwrap();
    let rows = db
        .read(|tx| tx.table("accounts")?.scan(..).rows::<Account>())
        .unwrap();
    let shown: Vec<_> = rows.iter().map(|r| (r.0, r.2, r.3.as_deref())).collect();
    assert_eq!(
        shown,
        [
            (1, 70, None),
            (2, 230, Some("thanks")),
            (3, 333, Some("put")),
            (4, 400, None),
            (6, 600, None),
            (7, 700, None)
        ]
    );
}

#[test]
fn scans_go_both_ways_along_any_index() {
    let db = shop();
    db.transaction(|tx| {
        let o = tx.table("orders")?;
        for a in 1..=3i64 {
            for n in 1..=4 {
                o.insert((a, n, format!("{a}/{n}")))?;
            }
        }
        let items =
            |rows: Vec<(i64, i32, String)>| rows.into_iter().map(|r| r.2).collect::<Vec<_>>();
        assert_eq!(
            items(o.scan(prefix(2)).rows()?),
            ["2/1", "2/2", "2/3", "2/4"]
        );
        assert_eq!(items(o.scan((1, 4)..(2, 2)).rows()?), ["1/4", "2/1"]);
        assert_eq!(
            items(o.scan((1, 4)..=(2, 2)).rows()?),
            ["1/4", "2/1", "2/2"]
        );
        assert_eq!(
            items(o.scan((2,)..=(2,)).reverse().limit(2).rows()?),
            ["2/4", "2/3"]
        );
        assert_eq!(items(o.scan((3, 3)..).rows()?), ["3/3", "3/4"]);
        assert_eq!(items(o.scan(..(1, 2)).rows()?), ["1/1"]);
        assert_eq!(items(o.scan(5..).rows()?), Vec::<String>::new());
        let t = tx.table("accounts")?;
        let best = t
            .scan(..)
            .index("accounts_by_balance")
            .reverse()
            .first::<Account>()?;
        assert_eq!(best.unwrap().0, 5);
        let named = t
            .scan(prefix("o3"))
            .index("accounts_owner_key")
            .first::<Account>()?;
        assert_eq!(named.unwrap().0, 3);
        let mut seen = vec![];
        t.scan(..).each(|r| {
            seen.push(r.get::<i64>("balance")?);
            Ok(seen.len() < 2)
        })?;
        assert_eq!(seen, [100, 200]);
        Ok(())
    })
    .unwrap();
    let e = db.read(|tx| tx.table("orders")?.scan(..).index("no").rows::<()>());
    assert_eq!(e.unwrap_err().code(), SqlState::UNDEFINED_OBJECT);
}

#[test]
fn constraints_hold_and_say_what_they_are() {
    let db = shop();
    let refused = |f: &dyn Fn(&canon::database::Transaction) -> canon::Result<()>| {
        let e = db.transaction(|tx| f(tx)).unwrap_err();
        (e.code(), e.fields().constraint.to_string())
    };
    let taken = refused(&|tx| tx.table("accounts")?.insert((1, "new", 0, "")));
    assert_eq!(taken, (SqlState::UNIQUE_VIOLATION, "accounts_pkey".into()));
    let taken = refused(&|tx| tx.table("accounts")?.insert((8, "o1", 0, "")));
    assert_eq!(
        taken,
        (SqlState::UNIQUE_VIOLATION, "accounts_owner_key".into())
    );
    let null = refused(&|tx| tx.table("accounts")?.insert(row! { id: 8, owner: "o8" }));
    assert_eq!(null.0, SqlState::NOT_NULL_VIOLATION);
    let orphan = refused(&|tx| tx.table("orders")?.insert((99, 1, "x")));
    assert_eq!(
        orphan,
        (
            SqlState::FOREIGN_KEY_VIOLATION,
            "orders_account_fkey".into()
        )
    );
    db.transaction(|tx| tx.table("orders")?.insert((1, 1, "x")))
        .unwrap();
    let parent = refused(&|tx| tx.table("accounts")?.delete(1).map(drop));
    assert_eq!(
        parent,
        (
            SqlState::FOREIGN_KEY_VIOLATION,
            "orders_account_fkey".into()
        )
    );
    let code = |f: &dyn Fn(&canon::database::Transaction) -> canon::Result<()>| refused(f).0;
    assert_eq!(
        code(&|tx| tx.table("nothing").map(drop)),
        SqlState::UNDEFINED_TABLE
    );
    let wide = code(&|tx| tx.table("orders")?.insert((1, i64::MAX, "x")));
    assert_eq!(wide, SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    let kind = code(&|tx| tx.table("orders")?.insert((1, "two", "x")));
    assert_eq!(kind, SqlState::DATATYPE_MISMATCH);
    let long = code(&|tx| tx.table("accounts")?.insert((8, "o8", 0, "123456789")));
    assert_eq!(long, SqlState::STRING_DATA_RIGHT_TRUNCATION);
    let short = code(&|tx| tx.table("orders")?.insert((1, 2)));
    assert_eq!(short, SqlState::SYNTAX_ERROR);
    let unknown = code(&|tx| tx.table("accounts")?.insert(row! { id: 1, nobody: 1 }));
    assert_eq!(unknown, SqlState::UNDEFINED_COLUMN);
    assert_eq!(balance(&db, 1), Some(100));
}

#[test]
fn an_operation_that_failed_ends_its_transaction_even_if_the_closure_goes_on() {
    let db = shop();
    let e = db.transaction(|tx| {
        let t = tx.table("accounts")?;
        t.update(1, |_: Account| row! { balance: 0 })?;
        let _ = t.insert((2, "again", 0, ""));
        Ok(())
    });
    assert_eq!(e.unwrap_err().code(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(balance(&db, 1), Some(100));
    // The caller's own error rolls back and is given back as it is.
    #[derive(Debug, PartialEq)]
    enum Refused {
        NotEnough,
        Database(SqlState),
    }
    impl From<Error> for Refused {
        fn from(e: Error) -> Self {
            Refused::Database(e.code())
        }
    }
    let mut runs = 0;
    let e = db.transaction_with(&TransactionOptions::default(), |tx| {
        runs += 1;
        let t = tx.table("accounts")?;
        t.update(1, |_: Account| row! { balance: 0 })?;
        Err::<(), _>(Refused::NotEnough)
    });
    assert_eq!((e, runs), (Err(Refused::NotEnough), 1));
    assert_eq!(balance(&db, 1), Some(100));
}

#[test]
fn read_only_transactions_do_not_write_and_nested_use_is_an_error() {
    let db = shop();
    let e = db.read(|tx| tx.table("accounts")?.delete(1));
    assert_eq!(e.unwrap_err().code(), SqlState::READ_ONLY_SQL_TRANSACTION);
    let e = db.read(|tx| {
        let t = tx.table("accounts")?;
        t.get_with(1, |_| t.contains(2))?.unwrap()
    });
    assert_eq!(e.unwrap_err().code(), SqlState::INTERNAL_ERROR);
}

/// Each thread adds one to the same row: none is lost, whoever loses races is run again, and under locks nobody fails.
#[test]
fn a_hot_row_is_counted_right() {
    let db = shop();
    let runs = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..200 {
                    db.transaction(|tx| {
                        runs.fetch_add(1, Ordering::Relaxed);
                        let t = tx.table("accounts")?;
                        t.update(1, |a: Account| row! { balance: a.2 + 1 })
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(balance(&db, 1), Some(100 + 800));
    assert!(runs.into_inner() >= 800);
}

/// A transaction that takes row locks keeps an optimistic one from committing under them.
#[test]
fn optimistic_commits_respect_row_locks() {
    let db = shop();
    let node = db.node();
    let handle = {
        let catalog = node.manager().catalog();
        catalog
            .tables
            .values()
            .find(|t| t.name() == "accounts")
            .unwrap()
            .clone()
    };
    let mut key = vec![];
    base::key::encode_value(&Value::Int8(1), &mut key);
    let mut locker = node.begin(TxnOptions::default(), false);
    locker.begin_statement().unwrap();
    locker
        .lock_row(&handle, &key, LockMode::Update, WaitPolicy::Wait)
        .unwrap();
    let once = TransactionOptions {
        max_runs: 1,
        ..TransactionOptions::default()
    };
    let add = |tx: &canon::database::Transaction| {
        tx.table("accounts")?
            .update(1, |a: Account| row! { balance: a.2 + 1 })
    };
    let e = db.transaction_with::<_, Error>(&once, add).unwrap_err();
    assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
    // With its usual runs it comes to locks of its own, waits, and goes on when the lock is free.
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            db.transaction(add).unwrap();
            done.store(true, Ordering::SeqCst);
        });
        while node.manager().locks.waits.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert!(!done.load(Ordering::SeqCst));
        node.rollback(locker);
    });
    assert_eq!(balance(&db, 1), Some(101));
}

#[test]
fn write_skew_is_refused_at_serializable_only() {
    let db = shop();
    for (isolation, sum) in [(Isolation::Serializable, 1), (Isolation::RepeatableRead, 2)] {
        db.transaction(|tx| {
            let t = tx.table("accounts")?;
            for i in [1, 2] {
                t.update(i, |_: Account| row! { balance: 0 })?;
            }
            Ok(())
        })
        .unwrap();
        // Both read both rows before either writes; who finds 0 puts a 1 into its own row.
        let barrier = Barrier::new(2);
        let options = TransactionOptions {
            isolation,
            ..TransactionOptions::default()
        };
        std::thread::scope(|s| {
            for mine in [1i64, 2] {
                let (db, barrier, options) = (&db, &barrier, &options);
                s.spawn(move || {
                    let mut first = true;
                    db.transaction_with::<_, Error>(options, |tx| {
                        let t = tx.table("accounts")?;
                        let total: i64 = t.scan(1..=2).rows::<Account>()?.iter().map(|a| a.2).sum();
                        if std::mem::take(&mut first) {
                            barrier.wait();
                        }
                        if total == 0 {
                            t.update(mine, |_: Account| row! { balance: 1 })?;
                        }
                        Ok(())
                    })
                    .unwrap();
                });
            }
        });
        let now = balance(&db, 1).unwrap() + balance(&db, 2).unwrap();
        assert_eq!(now, sum, "{isolation:?}");
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = DatabaseOptions::default;
    {
        let db = Database::open(dir.path(), options()).unwrap();
        assert!(db.report().created);
        db.create_table(accounts()).unwrap();
        let e = db.create_table(accounts()).unwrap_err();
        assert_eq!(e.code(), SqlState::DUPLICATE_TABLE);
        let second = Database::open(dir.path(), options()).err().unwrap();
        assert_eq!(second.code(), SqlState::OBJECT_IN_USE);
        let mut last = None;
        for i in 0..200i64 {
            let off = TransactionOptions {
                durability: if i % 2 == 0 {
                    Durability::On
                } else {
                    Durability::Off
                },
                ..TransactionOptions::default()
            };
            let owner = format!("o{i}");
            let done = db.transaction_nowait_with::<_, Error>(&off, |tx| {
                tx.table("accounts")?.insert((i, &owner, i, None::<&str>))
            });
            last = Some(done.unwrap());
        }
        let last = last.unwrap();
        let position = last.position;
        last.wait();
        assert!(db.node().is_published(position));
        db.checkpoint().unwrap();
        db.transaction(|tx| tx.table("accounts")?.delete(0))
            .unwrap();
    }
    let db = Database::open(dir.path(), options()).unwrap();
    assert!(!db.report().created);
    let n = db.read(|tx| Ok(tx.table("accounts")?.scan(..).rows::<Account>()?.len()));
    assert_eq!(n.unwrap(), 199);
    let parent = TableBuilder::new("child")
        .column("id", Type::Int8)
        .column("account", Type::Int8)
        .primary_key(["id"])
        .references_with(
            ["account"],
            "accounts",
            &[],
            FkAction::Cascade,
            FkAction::NoAction,
        );
    db.create_table(parent).unwrap();
    db.transaction(|tx| tx.table("child")?.insert((1, 1)))
        .unwrap();
    let e = db.drop_table("accounts").unwrap_err();
    assert_eq!(e.code(), SqlState::DEPENDENT_OBJECTS_STILL_EXIST);
    db.transaction(|tx| tx.table("accounts")?.delete(1))
        .unwrap();
    let left = db.read(|tx| tx.table("child")?.contains(1)).unwrap();
    assert!(!left, "the delete cascades");
    db.drop_table("child").unwrap();
    db.drop_table("accounts").unwrap();
    assert!(!db.has_table("accounts"));
}

/// Checks that are put off are made before the commit, of transactions that lock and of those that do not, also after a restart.
#[test]
fn deferred_constraints_hold_at_the_commit() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path(), DatabaseOptions::default()).unwrap();
    let rows = |db: &Database| -> Vec<(i32, i32)> {
        db.query("SELECT id, k FROM late ORDER BY id", ()).unwrap()
    };
    let made = [
        "CREATE TABLE late (id int PRIMARY KEY, k int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE child (p int REFERENCES late DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE hidden (id int PRIMARY KEY DEFERRABLE, n int)",
        "INSERT INTO late VALUES (1, 1), (2, 2)",
        "INSERT INTO hidden VALUES (1, 1), (2, 2)",
    ];
    for start in 0..2 {
        let db = open();
        if start == 0 {
            made.iter().for_each(|sql| _ = db.execute(sql, ()).unwrap());
        }
        db.execute("UPDATE hidden SET id = 3 - id", ()).unwrap();
        let refused = db.execute("INSERT INTO hidden VALUES (2, 9)", ());
        assert_eq!(refused.unwrap_err().code(), SqlState::UNIQUE_VIOLATION);
        for optimistic_runs in [0, 3] {
            let options = TransactionOptions {
                optimistic_runs,
                ..TransactionOptions::default()
            };
            let before = rows(&db);
            // Two rows have one key for a while.
            db.transaction_with::<_, Error>(&options, |tx| {
                let t = tx.table("late")?;
                t.update(1, |_: (i32, i32)| row! { k: before[1].1 })?;
                t.update(2, |_: (i32, i32)| row! { k: before[0].1 })
            })
            .unwrap();
            assert_eq!(rows(&db), [(1, before[1].1), (2, before[0].1)]);
            let twice = db.transaction_with::<_, Error>(&options, |tx| {
                tx.table("late")?.insert((3, 1))?;
                tx.table("late")?.insert((4, 4))
            });
            assert_eq!(twice.unwrap_err().code(), SqlState::UNIQUE_VIOLATION);
            let own = db.transaction_with::<_, Error>(&options, |tx| {
                tx.table("late")?.insert((3, 3))?;
                tx.table("late")?.insert((4, 3))
            });
            assert_eq!(own.unwrap_err().code(), SqlState::UNIQUE_VIOLATION);
            let orphan = db.transaction_with::<_, Error>(&options, |tx| {
                tx.execute("INSERT INTO child VALUES (9)", ())
            });
            assert_eq!(orphan.unwrap_err().code(), SqlState::FOREIGN_KEY_VIOLATION);
            assert_eq!(rows(&db).len(), 2);
        }
    }
}

#[test]
fn a_temporary_database_leaves_nothing() {
    let path = {
        let db = shop();
        db.node().path().to_owned()
    };
    assert!(!path.exists());
}

/// SQL in a library transaction sees what typed access wrote, and the other way round; a lost race runs both again.
#[test]
fn sql_and_typed_access_share_a_transaction() {
    let db = shop();
    let seen: Vec<(i64, String)> = db
        .transaction(|tx| {
            let t = tx.table("accounts")?;
            t.insert((6, "o6", 600, None::<&str>))?;
            assert_eq!(
                tx.execute(
                    "UPDATE accounts SET balance = balance + $1 WHERE id >= $2",
                    (1, 5)
                )?,
                2
            );
            assert_eq!(t.get::<Account>(6)?.unwrap().2, 601);
            t.delete(1)?;
            tx.query(
                "SELECT balance, owner FROM accounts WHERE id = $1 OR id > $2 ORDER BY id",
                (1, 4),
            )
        })
        .unwrap();
    assert_eq!(seen, [(501, "o5".into()), (601, "o6".into())]);
    // Rows by name, NULLs, RETURNING, an error that rolls the typed write back too.
    let names: Vec<Vec<Value>> = db
        .query(
            "INSERT INTO accounts (id, owner, balance) VALUES ($1, $2, $3) RETURNING note, owner",
            (7, "o7", 7),
        )
        .unwrap();
    assert!(names[0][0].is_null() && names[0][1].as_str() == Some("o7"));
    let e = db
        .transaction(|tx| {
            tx.table("accounts")?.delete(7)?;
            tx.execute(
                "INSERT INTO accounts (id, owner, balance) VALUES (8, 'o6', 1)",
                (),
            )
        })
        .unwrap_err();
    assert_eq!(e.code(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(balance(&db, 7), Some(7));
    for (sql, code) in [
        ("BEGIN", SqlState::FEATURE_NOT_SUPPORTED),
        ("SELECT 1; SELECT 2", SqlState::SYNTAX_ERROR),
        ("SELECT nope", SqlState::UNDEFINED_COLUMN),
        ("SELECT $1::int", SqlState::PROTOCOL_VIOLATION),
    ] {
        assert_eq!(db.execute(sql, ()).unwrap_err().code(), code, "{sql}");
    }
    let read_only = db.read(|tx| tx.execute("DELETE FROM accounts", ()));
    assert_eq!(
        read_only.unwrap_err().code(),
        SqlState::READ_ONLY_SQL_TRANSACTION
    );
    let too_deep = format!("SELECT {}1{}", "(".repeat(150), ")".repeat(150));
    assert_eq!(db.execute(&too_deep, ()).unwrap(), 1);
}

/// What is added to a split column in a transaction does not conflict with what another one adds that commits meanwhile.
#[test]
fn a_table_with_a_split_column_is_made_and_dropped_without_sql() {
    let db = Database::temporary().unwrap();
    let stock = || {
        TableBuilder::new("stock")
            .column("id", Type::Int8)
            .column("qty", Type::Int8)
            .primary_key(["id"])
    };
    for column in ["id", "none"] {
        assert!(db.create_table(stock().split(column)).is_err());
    }
    let hidden = || db.manager().catalog().tables.len();
    let before = hidden();
    db.create_table(stock().split_with("qty", 2, 8)).unwrap();
    assert_eq!(hidden(), before + 2, "with the table of further records");
    db.execute("INSERT INTO stock VALUES (1, 5)", ()).unwrap();
    let mut runs = 0;
    let done = db.transaction(|tx| {
        runs += 1;
        tx.table("stock")?.add(1, "qty", -2)?;
        if runs == 1 {
            db.transaction(|tx| tx.table("stock")?.add(1, "qty", -3))?;
        }
        Ok(())
    });
    done.unwrap();
    assert_eq!(runs, 1);
    let qty: Vec<(i32, i64)> = db.query("SELECT 1, qty FROM stock", ()).unwrap();
    assert_eq!(qty, [(1, 0)]);
    db.drop_table("stock").unwrap();
    assert_eq!(hidden(), before);
}

#[test]
fn additions_to_a_split_column_do_not_conflict() {
    let db = Database::temporary().unwrap();
    let table = "CREATE TABLE stock (id int8 PRIMARY KEY, qty int4 NOT NULL CHECK (qty >= 0), plain int4 CHECK (plain < 5),
                     price numeric(6,2) NOT NULL, note text) WITH (split = 'qty, price')";
    db.execute(table, ()).unwrap();
    db.execute(
        "INSERT INTO stock VALUES (1, 5, 0, 1.50), (2, 5, NULL, 2)",
        (),
    )
    .unwrap();
    let mut runs = 0;
    let done = db.transaction(|tx| {
        runs += 1;
        let sold = tx.table("stock")?.add(1, "qty", -2)?;
        if runs == 1 {
            db.transaction(|tx| tx.table("stock")?.add(1, "qty", -3))?;
        }
        tx.table("stock")?.add(1, "price", 1)?;
        Ok(sold)
    });
    assert!(done.unwrap());
    assert_eq!(runs, 1, "it ran once");
    let add = |id: i64, column: &str, n: i64| {
        let done = db.transaction(|tx| tx.table("stock")?.add(id, column, n));
        done.map_err(|e| e.code())
    };
    assert_eq!(add(1, "qty", -1), Err(SqlState::CHECK_VIOLATION));
    assert_eq!(
        add(2, "qty", i64::MAX),
        Err(SqlState::NUMERIC_VALUE_OUT_OF_RANGE)
    );
    assert_eq!(add(1, "plain", 4), Ok(true));
    assert_eq!(add(1, "plain", 1), Err(SqlState::CHECK_VIOLATION));
    assert_eq!(add(2, "plain", 1), Ok(true), "NULL stays NULL");
    assert_eq!(add(3, "qty", 1), Ok(false));
    assert_eq!(add(1, "note", 1), Err(SqlState::DATATYPE_MISMATCH));
    assert_eq!(add(1, "none", 1), Err(SqlState::UNDEFINED_COLUMN));
    let rows: Vec<(i64, i32, Option<i32>, String)> = db
        .query(
            "SELECT id, qty, plain, price::text FROM stock ORDER BY id",
            (),
        )
        .unwrap();
    let expected = [(1, 0, Some(4), "2.50".into()), (2, 5, None, "2.00".into())];
    assert_eq!(rows, expected);
}

/// A schema change is a statement like others; typed access in the same transaction would see tables as they were, and is refused.
#[test]
fn schema_changes_by_sql() {
    let db = Database::temporary().unwrap();
    db.execute(
        "CREATE TABLE t (id serial PRIMARY KEY, v numeric(4,1), stamp timestamp(0))",
        (),
    )
    .unwrap();
    let refused = db.transaction(|tx| {
        tx.table("t")?;
        tx.execute("ALTER TABLE t ADD COLUMN extra int DEFAULT 5", ())?;
        tx.execute("INSERT INTO t (v) VALUES (1.25)", ())?;
        tx.table("t")?.contains(1)
    });
    assert_eq!(refused.unwrap_err().code(), SqlState::FEATURE_NOT_SUPPORTED);
    db.transaction(|tx| {
        tx.execute("ALTER TABLE t ADD COLUMN extra int DEFAULT 5", ())?;
        tx.execute("INSERT INTO t (v) VALUES (1.25)", ())
    })
    .unwrap();
    // The library rounds as SQL does.
    let decimal = |s: &str| Value::from(s.parse::<base::Numeric>().unwrap());
    let stamp = Value::Timestamp(1_499_999);
    db.transaction(|tx| {
        tx.table("t")?
            .insert(row! { id: 50, v: decimal("2.25"), stamp: stamp.clone() })
    })
    .unwrap();
    let rows: Vec<(String, Option<String>, i32)> = db
        .query("SELECT v::text, stamp::text, extra FROM t ORDER BY id", ())
        .unwrap();
    assert_eq!(
        rows,
        [
            ("1.3".into(), None, 5),
            ("2.3".into(), Some("2000-01-01 00:00:01".into()), 5)
        ]
    );
    let big = db.transaction(|tx| tx.table("t")?.insert(row! { id: 51, v: decimal("999.95") }));
    assert_eq!(
        big.unwrap_err().code(),
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE
    );
}

/// Many threads on one row: each run of the closure reads and writes by SQL, and none is lost.
#[test]
fn sql_transactions_run_again() {
    let db = shop();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..50 {
                    db.transaction(|tx| {
                        let n: Vec<(i64,)> =
                            tx.query("SELECT balance FROM accounts WHERE id = $1", 1)?;
                        tx.execute("UPDATE accounts SET balance = $1 WHERE id = 1", n[0].0 + 1)
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(balance(&db, 1), Some(300));
}

/// With locks and without, a child of the same transaction that has gone needs no parent, and an orphan is refused.
#[test]
fn a_child_that_has_gone_needs_no_parent() {
    let db = shop();
    let late = "CREATE TABLE late (id bigint PRIMARY KEY, account bigint REFERENCES accounts DEFERRABLE INITIALLY DEFERRED)";
    db.execute(late, ()).unwrap();
    for isolation in [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        for optimistic_runs in [0, 100] {
            let options = TransactionOptions {
                isolation,
                optimistic_runs,
                ..TransactionOptions::default()
            };
            let typed: Result<(), Error> =
                db.transaction_with(&options, |tx| tx.table("late")?.insert((1, 77)));
            let by_sql: Result<u64, Error> = db.transaction_with(&options, |tx| {
                tx.execute("INSERT INTO late VALUES (1, 77)", ())
            });
            for e in [typed.unwrap_err(), by_sql.unwrap_err()] {
                assert_eq!(e.code(), SqlState::FOREIGN_KEY_VIOLATION);
            }
            let gone: Result<bool, Error> = db.transaction_with(&options, |tx| {
                let (accounts, late) = (tx.table("accounts")?, tx.table("late")?);
                accounts.insert((70, "o70", 0, None::<&str>))?;
                late.insert((2, 70))?;
                late.delete(2)?;
                accounts.delete(70)
            });
            assert!(gone.unwrap(), "{isolation:?}, {optimistic_runs}");
        }
    }
    let left: Vec<(i64,)> = db.query("SELECT count(*) FROM late", ()).unwrap();
    assert_eq!(left, [(0,)]);
}
