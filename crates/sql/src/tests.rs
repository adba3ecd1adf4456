//! The engine on small tables.

use crate::testing::TestDb;
use base::SqlState;

#[test]
fn keys_find_rows_and_writes_change_them() {
    let db = TestDb::new();
    db.run("CREATE TABLE t (id int PRIMARY KEY, v text, n bigint DEFAULT 7)")
        .unwrap();
    assert_eq!(
        db.run("INSERT INTO t VALUES (1, 'a', DEFAULT), (2, 'b', 9), (3, NULL, NULL)")
            .unwrap()
            .affected,
        3
    );
    assert_eq!(
        db.rows("SELECT * FROM t ORDER BY id"),
        ["1|a|7", "2|b|9", "3|NULL|NULL"]
    );
    assert_eq!(db.rows("SELECT v FROM t WHERE id = 2"), ["b"]);
    assert_eq!(
        db.run("UPDATE t SET n = n + 1, v = v || 'x' WHERE id = 2")
            .unwrap()
            .affected,
        1
    );
    assert_eq!(db.rows("SELECT v, n FROM t WHERE id = 2"), ["bx|10"]);
    assert_eq!(
        db.rows("DELETE FROM t WHERE id IN (1, 3, 3) RETURNING id, v"),
        ["1|a", "3|NULL"]
    );
    assert_eq!(db.rows("SELECT count(*) FROM t"), ["1"]);
    assert_eq!(
        db.fails("INSERT INTO t VALUES (2)"),
        SqlState::UNIQUE_VIOLATION
    );
    assert_eq!(db.fails("SELECT nope FROM t"), SqlState::UNDEFINED_COLUMN);
    assert_eq!(db.fails("SELECT * FROM nope"), SqlState::UNDEFINED_TABLE);
}

/// Runs the house's SQL logic tests on the engine alone; a development aid, not a gate: statements that are the session's own
/// business (BEGIN, SET …) make a file stop early there.
#[test]
fn slt_files_run_as_far_as_the_engine_goes() {
    let Ok(filter) = std::env::var("CANON_SLT") else {
        return;
    };
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../canon/tests/slt");
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    for path in names {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if filter != "all" && !filter.split(',').any(|f| f == name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let db = TestDb::new();
        let (mut good, mut bad) = (0, 0);
        for block in text.split("\n\n") {
            let lines: Vec<&str> = block.lines().filter(|l| !l.starts_with('#')).collect();
            let Some((head, rest)) = lines.split_first() else {
                continue;
            };
            let cut = rest.iter().position(|l| *l == "----");
            let sql = rest[..cut.unwrap_or(rest.len())].join("\n");
            let want: Vec<&str> = cut.map_or(vec![], |c| rest[c + 1..].to_vec());
            let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.run(&sql)));
            let ok = match (&got, head.split(' ').next()) {
                (Err(_), _) => false,
                (Ok(Ok(_)), Some("statement")) => head.contains("ok") || head.contains("count"),
                (Ok(Err(e)), Some("statement")) => head.contains(e.code().code()),
                (Ok(Ok(a)), Some("query")) => {
                    let mut rows: Vec<String> = a.rows.iter().map(|r| r.join("|")).collect();
                    let mut want: Vec<String> = want.iter().map(|s| s.to_string()).collect();
                    if head.contains("rowsort") {
                        rows.sort();
                        want.sort();
                    }
                    rows == want
                }
                _ => false,
            };
            if ok {
                good += 1;
            } else {
                bad += 1;
                let shown = match got {
                    Err(_) => "panic".into(),
                    Ok(Ok(a)) => a
                        .rows
                        .iter()
                        .map(|r| r.join("|"))
                        .collect::<Vec<_>>()
                        .join("\n    "),
                    Ok(Err(e)) => e.to_string(),
                };
                println!(
                    "-- {name}: {head}\n{sql}\n  want {}\n  got  {shown}",
                    want.join("\n    ")
                );
            }
        }
        println!("== {name}: {good} good, {bad} bad");
    }
}
