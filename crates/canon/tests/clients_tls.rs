//! libpq inside of TLS: each `sslmode`, the binding of the password's proof, client certificates.

#[path = "tls/certificates.rs"]
mod certificates;
mod common;
#[path = "clients/programs.rs"]
mod programs;

use certificates::{Authority, text};
use common::{Server, on_postgres};
use programs::pg_program;
use std::process::Command;

/// What psql gives for a query, or what it says against it.
async fn psql(conninfo: String, query: &'static str) -> Result<String, String> {
    let run = move || {
        let mut command = Command::new(pg_program("psql"));
        command.args(["-X", "-A", "-t", "-c", query, &conninfo]);
        for name in ["PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C.UTF-8").env("HOME", "/nonexistent");
        let output = command.output().expect("psql runs");
        let out = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(out).ok_or(err)
    };
    tokio::task::spawn_blocking(run).await.expect("it ends")
}

const SEEN: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[tokio::test(flavor = "multi_thread")]
async fn each_mode_of_libpq() {
    if on_postgres() {
        return;
    }
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let clients = Authority::new("clients");
    let pair = authority.sign("server", "server", &["localhost"]);
    let ca = clients.root();
    let mut variables = pair.variables();
    variables.push(("CANON_TLS_CLIENT_CA", text(&ca)));
    let server = Server::start_with(&variables).await;
    let alice = "CREATE ROLE alice LOGIN PASSWORD 'secret'";
    server
        .connect()
        .await
        .batch_execute(alice)
        .await
        .expect("a role");
    let at = |host: &str, more: &str| {
        format!(
            "host={host} hostaddr=127.0.0.1 port={} dbname=canon user=alice password=secret {more}",
            server.port
        )
    };
    let root = format!("sslrootcert={}", text(&authority.root()));
    let other = format!("sslrootcert={}", text(&stranger.root()));
    let served = async |conninfo: String, ssl: &str| {
        let seen = psql(conninfo.clone(), SEEN).await;
        assert_eq!(seen.as_deref(), Ok(ssl), "{conninfo}");
    };
    let refused = async |conninfo: String, why: &str| {
        let e = psql(conninfo.clone(), SEEN).await.expect_err(&conninfo);
        assert!(e.contains(why), "{conninfo}: {e}");
    };
    served(at("localhost", "sslmode=disable"), "f").await;
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        served(at("localhost", &format!("sslmode={mode} {root}")), "t").await;
    }
    served(at("db.example", &format!("sslmode=verify-ca {root}")), "t").await;
    let full = format!("sslmode=verify-full {root}");
    refused(at("db.example", &full), "does not match host name").await;
    let stranger = format!("sslmode=verify-full {other}");
    refused(at("localhost", &stranger), "certificate verify failed").await;
    // SCRAM-SHA-256-PLUS; without TLS there is none.
    let bound = format!("{full} channel_binding=require");
    served(at("localhost", &bound), "t").await;
    let plain = "sslmode=disable channel_binding=require";
    refused(at("localhost", plain), "channel binding").await;
    let own = clients.sign("alice", "alice", &[]);
    let shown = format!(
        "{full} sslcert={} sslkey={}",
        text(&own.certificate),
        text(&own.key)
    );
    let who = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let who = psql(at("localhost", &shown), who).await.expect("who");
    assert!(who.contains("/CN=alice"), "{who}");
}
