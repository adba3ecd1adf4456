//! psql's `\d` family and the catalogs, compared line by line with what PostgreSQL 15 shows (`describe/describe.out`, made by
//! running the script there as a superuser `canon` in a new database `canon`).

mod common;

use common::Server;
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn psql_shows_what_postgresql_shows() {
    let server = Server::start().await;
    let dir = common::tests_dir().join("describe");
    let program = std::env::var_os("CANON_PG_BIN").map_or("psql".into(), |dir| {
        std::path::PathBuf::from(dir).join("psql")
    });
    let mut command = Command::new(program);
    command.args(["-X", "-q", "-P", "pager=off", "-f"]);
    command.arg(dir.join("describe.sql")).arg(server.url());
    let output = tokio::task::spawn_blocking(move || command.output().expect("psql runs"))
        .await
        .expect("the task ends");
    let place = format!("psql:{}:", dir.join("describe.sql").display());
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).replace(&place, "");
    let wanted = std::fs::read_to_string(dir.join("describe.out")).expect("a golden file");
    let sections = |s: &str| -> Vec<String> { s.split("=== ").map(str::to_owned).collect() };
    let (got, wanted) = (sections(&got), sections(&wanted));
    let mut differences = String::new();
    for (i, w) in wanted.iter().enumerate() {
        let g = got.get(i).map_or("(nothing)", String::as_str);
        if g.trim_end() != w.trim_end() {
            differences.push_str(&format!("--- PostgreSQL\n{w}--- Canon\n{g}\n"));
        }
    }
    assert!(differences.is_empty(), "{differences}\n{errors}");
    assert_eq!(errors.trim(), "", "psql says nothing else");
}
