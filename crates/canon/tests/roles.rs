//! Whom a session acts as: nobody becomes more than he may, whatever becomes of the roles' names meanwhile and wherever the session goes on.

#[allow(dead_code)]
#[path = "replica_reads/helpers.rs"]
mod helpers;

use helpers::*;
use tokio_postgres::{Client, NoTls};

const WHO: &str =
    "SELECT session_user || ' ' || current_user || ' ' || current_setting('is_superuser')";

/// A session of this role, with these options.
fn log_in(t: &Test, member: usize, role: &str, options: &str) -> Result<Client, String> {
    let mut config: tokio_postgres::Config = t.cluster.url(member).parse().expect("a URL");
    config.user(role).options(options);
    t.runtime.block_on(async {
        let (client, connection) = config.connect(NoTls).await.map_err(|e| code(&e))?;
        tokio::spawn(connection);
        Ok(client)
    })
}

/// Who the session is, before and after an error, which goes back to what was set.
fn who(t: &Test, c: &Client) -> String {
    let before = t.one(c, WHO);
    assert_eq!(t.refused(c, "SELECT 1 / 0"), "22012");
    assert_eq!(t.one(c, WHO), before);
    t.run(c, "BEGIN; SET application_name = 'x'; ROLLBACK");
    assert_eq!(t.one(c, WHO), before);
    before
}

#[test]
fn what_a_client_says_at_the_start_makes_it_nobody_that_it_may_not_be() {
    let t =
        Test::start("CREATE ROLE weak LOGIN; CREATE ROLE other; CREATE ROLE boss LOGIN SUPERUSER");
    for member in [t.cluster.primary(), t.cluster.replicas()[0]] {
        for (role, options, found) in [
            ("weak", "-c role=boss", Err("42501")),
            ("weak", "-c ROLE=boss", Err("42501")),
            ("weak", "--session-authorization=boss", Err("42501")),
            ("weak", "-c role=nobody", Err("22023")),
            ("weak", "-c role=weak", Ok("weak weak off")),
            ("weak", "-c role=none", Ok("weak weak off")),
            ("boss", "-c role=other", Ok("boss other off")),
            (
                "boss",
                "-c session_authorization=other",
                Ok("other other off"),
            ),
            (
                "boss",
                "-c role=other -c session_authorization=weak",
                Err("42501"),
            ),
            ("boss", "", Ok("boss boss on")),
        ] {
            let session = log_in(&t, member, role, options);
            let got = session.map(|c| who(&t, &c));
            let found = found.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(got, found, "{role} {options}");
        }
        let c = log_in(&t, member, "boss", "-c session_authorization=other").expect("a session");
        t.run(&c, "RESET SESSION AUTHORIZATION");
        assert_eq!(who(&t, &c), "boss boss on");
    }
}

#[test]
fn a_role_is_the_same_whatever_its_name_becomes() {
    let t = Test::start("CREATE TABLE secret (v int)");
    let p = t.primary();
    for (n, member) in [t.cluster.primary(), t.cluster.replicas()[0]]
        .into_iter()
        .enumerate()
    {
        let c = t.connect(member, "");
        let me = t.one(&c, "SELECT current_user");
        for (i, set) in ["ROLE", "SESSION AUTHORIZATION"].into_iter().enumerate() {
            let (low, next) = (format!("low{n}{i}"), format!("next{n}{i}"));
            t.run(&p, &format!("CREATE ROLE {low}"));
            t.run(&c, &format!("SET {set} {low}"));
            let user = |name: &str| match i {
                0 => format!("{me} {name} off"),
                _ => format!("{name} {name} off"),
            };
            assert_eq!(who(&t, &c), user(&low));
            t.run(
                &p,
                &format!("ALTER ROLE {low} RENAME TO {next}; CREATE ROLE {low} SUPERUSER"),
            );
            t.cluster.catch_up().expect("caught up");
            assert_eq!(who(&t, &c), user(&next));
            assert_eq!(t.refused(&c, "SELECT * FROM secret"), "42501");
            t.run(&p, &format!("DROP ROLE {next}"));
            assert_eq!(t.one(&c, "SELECT current_setting('is_superuser')"), "off");
            assert_eq!(t.refused(&c, "SELECT 1 / 0"), "22012");
            assert_eq!(t.one(&c, "SELECT current_setting('is_superuser')"), "off");
            assert_eq!(t.refused(&c, "SELECT * FROM secret"), "42501");
            assert_eq!(t.refused(&c, "INSERT INTO secret VALUES (1)"), "42501");
            t.run(&c, &format!("RESET {set}"));
            assert_eq!(who(&t, &c), format!("{me} {me} on"));
        }
    }
}

/// A role that one of two nodes does not know yet is not who is logged in.
#[test]
fn a_session_that_goes_on_elsewhere_is_nobody_else() {
    let t = Test::start(
        "CREATE TABLE secret (v int); CREATE TABLE open (v int); GRANT ALL ON open TO PUBLIC",
    );
    let (p, r) = (t.primary(), t.replica());
    let me = t.one(&r, "SELECT current_user");
    // Made and taken on where the transaction goes on.
    t.hold(true);
    t.run(&r, "BEGIN; CREATE ROLE made; SET ROLE made; COMMIT");
    t.run(&r, "SET canon.read_consistency = 'eventual'");
    assert_eq!(t.refused(&r, "SELECT * FROM secret"), "42501");
    t.hold(false);
    t.cluster.catch_up().expect("caught up");
    t.run(&r, "RESET canon.read_consistency");
    assert_eq!(who(&t, &r), format!("{me} made off"));
    assert_eq!(t.refused(&r, "SELECT * FROM secret"), "42501");
    t.run(&r, "INSERT INTO open VALUES (1); RESET ROLE");
    // Made after the connection to the primary was, and taken on in the block that moves.
    t.run(&r, "INSERT INTO open VALUES (2)");
    t.run(&p, "CREATE ROLE later");
    t.run(
        &r,
        "BEGIN; SET LOCAL ROLE later; INSERT INTO open VALUES (3)",
    );
    assert_eq!(t.one(&r, WHO), format!("{me} later off"));
    assert_eq!(t.refused(&r, "SELECT * FROM secret"), "42501");
    t.run(&r, "ROLLBACK");
    assert_eq!(who(&t, &r), format!("{me} {me} on"));
    // Renamed where the work goes on, and not known here.
    t.run(&r, "SET ROLE later");
    t.hold(true);
    t.run(
        &p,
        "ALTER ROLE later RENAME TO last; CREATE TABLE x (v int)",
    );
    assert_eq!(t.refused(&r, "INSERT INTO secret VALUES (1)"), "42501");
    t.hold(false);
    t.run(&r, "RESET ROLE; INSERT INTO secret VALUES (1)");
    assert_eq!(t.one(&p, "SELECT count(*) FROM secret"), "1");
}
