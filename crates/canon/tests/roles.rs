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

/// What a view reads is read with the rights of its owner as they are when a statement runs, at every node and in every way to read.
#[test]
fn a_view_is_read_with_its_owners_rights_of_now() {
    let t = Test::start(
        "CREATE ROLE reader LOGIN; CREATE ROLE owner LOGIN; CREATE SCHEMA app AUTHORIZATION owner; \
         GRANT USAGE ON SCHEMA app TO reader; \
         CREATE TABLE cards (id int PRIMARY KEY, number text); INSERT INTO cards VALUES (1, 'x'); \
         CREATE TABLE own (id int); ALTER TABLE own OWNER TO reader; \
         SET ROLE owner; CREATE VIEW app.cards AS SELECT * FROM public.cards; \
         CREATE VIEW app.outer AS SELECT count(*) AS n FROM app.cards; \
         GRANT SELECT ON app.cards, app.outer TO reader; RESET ROLE",
    );
    let p = t.primary();
    let members = [t.cluster.primary(), t.cluster.replicas()[0]];
    let sessions: Vec<Client> = members
        .iter()
        .map(|&m| log_in(&t, m, "reader", "").expect("a session"))
        .collect();
    let prepared: Vec<_> = sessions
        .iter()
        .map(|c| {
            let both = ["SELECT id FROM app.cards", "SELECT n FROM app.outer"];
            both.map(|q| t.runtime.block_on(c.prepare(q)).expect(q))
        })
        .collect();
    let ways = [
        "SELECT * FROM app.cards",
        "SELECT * FROM app.cards WHERE id = 1",
        "SELECT n FROM app.outer",
        "EXPLAIN SELECT * FROM app.cards",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM app.cards)",
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM app.cards; FETCH c; COMMIT",
        "PREPARE q AS SELECT * FROM app.cards; EXECUTE q; DEALLOCATE q",
        "INSERT INTO own SELECT id FROM app.cards",
    ];
    let check = |may: bool, why: &str| {
        for (c, statements) in sessions.iter().zip(&prepared) {
            for way in ways {
                let got = t
                    .runtime
                    .block_on(c.simple_query(way))
                    .map_err(|e| code(&e));
                assert_eq!(got.is_ok(), may, "{why}: {way}: {got:?}");
                if let Err(code) = got {
                    assert_eq!(code, "42501", "{why}: {way}");
                    t.run(c, "ROLLBACK");
                    _ = t.runtime.block_on(c.batch_execute("DEALLOCATE q"));
                }
            }
            for s in statements {
                let got = t.runtime.block_on(c.query(s, &[])).map_err(|e| code(&e));
                let got = got.map(|rows| rows.len());
                let expected = if may { Ok(1) } else { Err("42501".into()) };
                assert_eq!(got, expected, "{why}: a prepared statement");
            }
            let copy = "COPY (SELECT * FROM app.cards) TO STDOUT";
            let got = t.runtime.block_on(c.copy_out(copy)).map(|_| ());
            assert_eq!(got.is_ok(), may, "{why}: {copy}");
        }
    };
    check(false, "the owner may not read");
    for (change, may) in [
        ("GRANT SELECT ON cards TO owner", true),
        ("REVOKE SELECT ON cards FROM owner", false),
        ("GRANT SELECT ON cards TO reader", false),
        ("ALTER VIEW app.cards SET (security_invoker = true)", true),
        ("REVOKE SELECT ON cards FROM reader", false),
        ("ALTER VIEW app.cards RESET (security_invoker)", false),
        ("GRANT SELECT ON cards TO PUBLIC", true),
        ("REVOKE SELECT ON cards FROM PUBLIC", false),
        (
            "ALTER VIEW app.cards OWNER TO canon; GRANT SELECT ON app.cards TO owner",
            true,
        ),
        (
            "REVOKE SELECT ON app.cards FROM reader; GRANT SELECT ON app.cards TO reader",
            true,
        ),
        ("ALTER VIEW app.cards OWNER TO owner", false),
        ("ALTER TABLE cards OWNER TO owner", true),
        ("REVOKE USAGE ON SCHEMA app FROM reader", false),
    ] {
        t.run(&p, change);
        t.cluster.catch_up().expect("caught up");
        check(may, change);
    }
    // Not even a superuser reads what the owner of the view may not.
    t.run(&p, "ALTER TABLE cards OWNER TO canon");
    assert_eq!(t.refused(&p, "SELECT * FROM app.cards"), "42501");
}

/// Settings that the database keeps for its sessions: at the primary, at a replica, and after a start.
#[test]
fn stored_settings_hold_for_sessions_that_begin_after_them() {
    let t = Test::start(
        "CREATE ROLE ann LOGIN; CREATE ROLE boss LOGIN SUPERUSER; CREATE ROLE maker LOGIN CREATEROLE",
    );
    let p = t.primary();
    let level = |c: &Client| t.one(c, "SHOW default_transaction_isolation");
    t.run(&p, "ALTER ROLE ann SET default_transaction_isolation = 'repeatable read'; ALTER ROLE ann IN DATABASE canon SET work_mem TO '64MB'");
    t.run(&p, "ALTER DATABASE canon SET statement_timeout = '77s'; ALTER ROLE ALL SET search_path = public, \"Other\"");
    // The session that stored them has what it had.
    assert_eq!(t.one(&p, "SHOW statement_timeout"), "0");
    t.cluster.catch_up().expect("caught up");
    for member in [t.cluster.primary(), t.cluster.replicas()[0]] {
        let ann = log_in(&t, member, "ann", "").expect("ann");
        assert_eq!(level(&ann), "repeatable read");
        assert_eq!(t.one(&ann, "SHOW work_mem"), "64MB");
        assert_eq!(t.one(&ann, "SHOW statement_timeout"), "77s");
        assert_eq!(t.one(&ann, "SHOW search_path"), "public, \"Other\"");
        t.run(&ann, "SET work_mem = '1MB'; RESET work_mem");
        assert_eq!(t.one(&ann, "SHOW work_mem"), "64MB");
        // What the client asks for stands above.
        let ann = log_in(&t, member, "ann", "-c work_mem=2MB").expect("ann");
        assert_eq!(t.one(&ann, "SHOW work_mem"), "2MB");
        let boss = log_in(&t, member, "boss", "").expect("boss");
        assert_eq!(level(&boss), "serializable", "the configuration's");
        assert_eq!(t.one(&boss, "SHOW statement_timeout"), "77s");
    }
    assert_eq!(
        t.one(&p, "SELECT string_agg(coalesce(rolname, '-') || ' ' || setdatabase::text || ' ' || setconfig::text, '; ' ORDER BY rolname, setdatabase)
                   FROM pg_db_role_setting LEFT JOIN pg_roles r ON r.oid = setrole"),
        "ann 0 {\"default_transaction_isolation=repeatable read\"}; ann 5 {work_mem=64MB}; \
         - 5 {statement_timeout=77s,\"search_path=public, \\\"Other\\\"\"}"
    );
    assert_eq!(
        t.one(
            &p,
            "SELECT rolconfig::text FROM pg_roles WHERE rolname = 'ann'"
        ),
        "{\"default_transaction_isolation=repeatable read\"}"
    );
    // Whose settings a role may change.
    let ann = log_in(&t, t.cluster.primary(), "ann", "").expect("ann");
    t.run(
        &ann,
        "ALTER ROLE ann SET work_mem = '3MB'; ALTER ROLE current_user RESET work_mem",
    );
    for refused in [
        "ALTER ROLE boss SET work_mem = '3MB'",
        "ALTER ROLE maker SET work_mem = '3MB'",
        "ALTER ROLE ALL SET work_mem = '3MB'",
        "ALTER DATABASE canon SET work_mem = '3MB'",
        "ALTER ROLE ann SET canon.statement_memory_ceiling = '1GB'",
    ] {
        assert_eq!(t.refused(&ann, refused), "42501", "{refused}");
    }
    let maker = log_in(&t, t.cluster.primary(), "maker", "").expect("maker");
    t.run(&maker, "ALTER ROLE ann SET lock_timeout = '9s'");
    assert_eq!(
        t.refused(&maker, "ALTER ROLE boss SET lock_timeout = '9s'"),
        "42501"
    );
    for (wrong, code) in [
        ("ALTER ROLE ann SET nonesuch = 1", "42704"),
        ("ALTER ROLE ann SET work_mem = 'much'", "22023"),
        ("ALTER ROLE nobody_there SET work_mem = '1MB'", "42704"),
        ("ALTER DATABASE other SET work_mem = '1MB'", "3D000"),
        ("ALTER ROLE ann SET work_mem FROM CURRENT", "0A000"),
        ("ALTER ROLE ann SET work_mem", "42601"),
    ] {
        assert_eq!(t.refused(&p, wrong), code, "{wrong}");
    }
    t.run(&p, "ALTER ROLE ann RESET ALL; ALTER ROLE ann IN DATABASE canon RESET work_mem; ALTER DATABASE canon RESET ALL; DROP ROLE ann");
    assert_eq!(t.one(&p, "SELECT count(*) FROM pg_db_role_setting"), "0");
    let boss = log_in(&t, t.cluster.primary(), "boss", "").expect("boss");
    assert_eq!(t.one(&boss, "SHOW statement_timeout"), "0");
}
