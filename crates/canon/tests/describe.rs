//! psql's `\d` family, the catalogs, drivers' introspection and DDL over rows, compared line by line with what PostgreSQL 15
//! answers (`describe/*.out`, made by running the scripts there as a superuser `canon`, each in a new database).

mod common;

use common::Server;
use std::process::Command;

/// Runs a script and compares standard output and errors, in that order, with the golden file.
async fn compare(name: &str) {
    let server = Server::start().await;
    let dir = common::tests_dir().join("describe");
    let program = std::env::var_os("CANON_PG_BIN").map_or("psql".into(), |dir| {
        std::path::PathBuf::from(dir).join("psql")
    });
    let mut command = Command::new(program);
    command.current_dir(&dir).env("LC_ALL", "C.UTF-8");
    command.args(["-X", "-q", "-P", "pager=off", "-f", &format!("{name}.sql")]);
    command.arg(server.url());
    let output = tokio::task::spawn_blocking(move || command.output().expect("psql runs"))
        .await
        .expect("the task ends");
    let got = format!(
        "{}=== errors\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let wanted = std::fs::read_to_string(dir.join(format!("{name}.out"))).expect("a golden file");
    let (mut got_lines, mut shown) = (got.lines(), String::new());
    for (i, wanted) in wanted.lines().enumerate() {
        let got = got_lines.next().unwrap_or("(the end)");
        if got.trim_end() != wanted.trim_end() {
            shown = format!("line {}:\n- {wanted}\n+ {got}", i + 1);
            break;
        }
    }
    assert!(shown.is_empty(), "{name}: {shown}\n\n{got}");
    assert_eq!(got_lines.next(), None, "{name}: more than wanted");
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_and_drivers_see_what_postgresql_shows() {
    compare("describe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_with_rows_change_as_in_postgresql() {
    compare("alter").await;
}
