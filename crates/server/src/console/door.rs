//! Who sees the console: what psql would ask of the same person at the same place.
//!
//! | the request comes | and shows | answer |
//! |---|---|---|
//! | from this machine | nothing | in, if the role that made the database gets in from here without a password; else 401 |
//! | from this machine | a role and its password (HTTP Basic) | in, if psql would let that role in from here by its password |
//! | from another machine, inside of TLS | nothing | 401 |
//! | from another machine, inside of TLS | a role and its password | the same, and a role without a password stays out |
//! | from another machine, not inside of TLS | whatever | 403, unless `allow_plain_network`: Basic shows the password on its way |
//!
//! Superusers see all. A role with the rights of `pg_read_all_stats` (as `pg_monitor` has them) sees all but keys and totals, which are contents of tables. Others are
//! told 403. The access rules (`entrance::access`) are asked as for a session. A role that they want a certificate of does not get in.
//!
//! **From this machine** means a loopback address, a `Host` that is one, HTTP/1.1, and no header of a proxy. A page of the web can make a browser ask a
//! loopback address under a name of its own (DNS rebinding), and such a request shows that name in `Host`. A proxy on this machine speaks for others. One that
//! asks over HTTP/1.1 under the server's own address, and says nothing of the client, cannot be told apart from this machine.
//!
//! **Passwords.** A password is held against the role's SCRAM verifier without leaving early, one at a time, and a role that is not there costs as much as one that is. A proof
//! that was right is known again by a keyed hash until the verifier changes, so that a page that asks each second costs no thousands of rounds.
//! Wrong ones are limited by address (`throttle`).
//!
//! Pure: what time it is, and what the schema is, the caller says.
//!
//! Left out on purpose: cookies and sessions; a browser shows its login with each request.

use super::throttle::Throttle;
use crate::audit::refused_login;
use crate::connections::is_loopback;
use crate::entrance::Entrance;
use crate::entrance::access::{self, Method, Wants};
use crate::entrance::roles::{is_valid, may_log_in, verifier};
use base::schema::{BOOTSTRAP_ROLE, Schema};
use base::{Error, SqlState, membership};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use protocol::DATABASE;
use sql::ddl::scram_verifier;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Proofs that are known again. All are forgotten when there are more.
const KNOWN: usize = 64;
/// Rounds that a verifier may ask for.
const ROUNDS: u32 = 1_000_000;
/// Rounds for a role that is not there: those of a verifier that is made here.
const COMMON: u32 = 4096;

/// What is asked with.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub peer: SocketAddr,
    pub secured: bool,
    pub host: Option<&'a str>,
    /// A proxy says that it speaks for another.
    pub forwarded: bool,
    pub authorization: Option<&'a str>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In. `keys`: with keys and totals.
    In { keys: bool },
    /// 401: a login is wanted, or another one.
    Login,
    /// 429.
    Later(Duration),
    /// 403, and why.
    Refused(String),
}

/// See the head of the file.
pub struct Door {
    secret: [u8; 16],
    throttle: Throttle,
    /// By role: the keyed hash of its password, and the verifier that it was right for.
    known: HashMap<String, (String, String)>,
}

/// Compared without leaving early.
fn same(a: &str, b: &str) -> bool {
    let differs = a.bytes().zip(b.bytes()).fold(0, |d, (a, b)| d | (a ^ b));
    a.len() == b.len() && differs == 0
}

/// Role and password of an `Authorization: Basic` header.
fn basic(header: &str) -> Option<(String, String)> {
    let (scheme, coded) = header.split_once(' ')?;
    let bytes = BASE64_STANDARD.decode(coded.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    let basic = scheme.eq_ignore_ascii_case("basic");
    basic.then(|| (user.to_owned(), password.to_owned()))
}

/// Whether a `Host` header names a loopback address.
fn names_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse().is_ok_and(|a| is_loopback(&a));
    address || name.eq_ignore_ascii_case("localhost")
}

impl Asked<'_> {
    /// Whether it is of this machine. See the head of the file.
    pub fn is_local(&self) -> bool {
        // A program's request may have no Host; a browser's has one.
        let host = self.host.is_none_or(names_loopback);
        self.is_from_loopback() && host && !self.forwarded
    }

    fn is_from_loopback(&self) -> bool {
        is_loopback(&self.peer.ip())
    }
}

/// How this role has to prove itself; an error: not at all.
fn method(
    asked: &Asked<'_>,
    role: &str,
    entrance: &Entrance,
    schema: &Schema,
) -> Result<Option<Method>, Error> {
    let rules = &entrance.access;
    if rules.is_empty() {
        return Ok(None);
    }
    let wants = Wants {
        address: Some(asked.peer.ip()),
        tls: asked.secured,
        role,
        database: DATABASE,
        replication: false,
    };
    let is_member = |of: &str| match (schema.role_named(role), schema.role_named(of)) {
        (Some(role), Some(of)) => role.id == of.id || schema.is_plain_member_of(role.id, of.id),
        _ => false,
    };
    access::decide(rules, &wants, is_member).map(Some)
}

/// Whether psql would let this role in from this machine without a password.
fn is_free(method: Option<Method>, role: &str, schema: &Schema) -> bool {
    match method {
        None => verifier(schema, role).is_none(),
        Some(method) => method == Method::Trust,
    }
}

/// Salt and rounds of a verifier; none: it has another form, or more rounds than [`ROUNDS`].
fn salt_of(verifier: &str) -> Option<(Vec<u8>, u32)> {
    let (head, _) = verifier.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
    let (rounds, salt) = head.split_once(':')?;
    let rounds = rounds.parse().ok().filter(|n| *n <= ROUNDS)?;
    Some((BASE64_STANDARD.decode(salt).ok()?, rounds))
}

impl Door {
    /// `secret` cannot be guessed.
    pub fn new(secret: [u8; 16]) -> Door {
        Door {
            secret,
            throttle: Throttle::default(),
            known: HashMap::new(),
        }
    }

    /// The answer. `now` is a `timestamptz`, `clock` a monotonic time.
    pub fn open(
        &mut self,
        asked: &Asked<'_>,
        entrance: &Entrance,
        schema: &Schema,
        (now, clock): (i64, Duration),
    ) -> Verdict {
        if !asked.is_from_loopback() && !asked.secured && !entrance.allow_plain_network {
            return Verdict::Refused(
                "the console is shown to other machines inside of TLS only: ask with https".into(),
            );
        }
        let Some((role, password)) = asked.authorization.and_then(basic) else {
            let first = schema.role(BOOTSTRAP_ROLE).filter(|_| asked.is_local());
            let free = |name: &str| {
                let method = method(asked, name, entrance, schema).ok()?;
                Some(is_free(method, name, schema))
            };
            return match first.and_then(|r| free(&r.name)) {
                Some(true) => Verdict::In { keys: true },
                _ => Verdict::Login,
            };
        };
        let method = match method(asked, &role, entrance, schema) {
            Ok(Some(Method::Cert)) => {
                let what =
                    "this role proves itself by a certificate, which the console does not take";
                return Verdict::Refused(what.into());
            }
            Ok(method) => method,
            Err(e) => return Verdict::Refused(e.fields().message.to_string()),
        };
        let free = asked.is_local() && is_free(method, &role, schema);
        if !free && let Err(refused) = self.check(asked, schema, (&role, &password), (now, clock)) {
            return refused;
        }
        if may_log_in(schema, &role).is_err() {
            return Verdict::Login;
        }
        let id = schema.role_named(&role).map_or(0, |r| r.id);
        let superuser = schema.role(id).is_some_and(|r| r.superuser);
        if superuser || schema.has_rights_of(id, membership::READ_ALL_STATS) {
            return Verdict::In { keys: superuser };
        }
        Verdict::Refused(format!(
            "role \"{role}\" may not see what sessions do: it needs the rights of pg_monitor"
        ))
    }

    /// Whether the password is this role's; an error is what it gets instead.
    fn check(
        &mut self,
        asked: &Asked<'_>,
        schema: &Schema,
        (role, password): (&str, &str),
        (now, clock): (i64, Duration),
    ) -> Result<(), Verdict> {
        let own = verifier(schema, role).filter(|_| is_valid(schema, role, now));
        let hash = scram_verifier(password, &self.secret, 1);
        let known = self.known.get(role);
        if known.is_some_and(|(h, v)| same(h, &hash) && own == Some(v.as_str())) {
            return Ok(());
        }
        let address = asked.peer.ip();
        if let Some(wait) = self.throttle.wait(address, clock) {
            return Err(Verdict::Later(wait));
        }
        let (salt, rounds) = match own.map(salt_of) {
            Some(Some(of)) => of,
            Some(None) => {
                let what = "the verifier of this role's password asks for too much work";
                return Err(Verdict::Refused(what.into()));
            }
            None => (self.secret.to_vec(), COMMON),
        };
        let made = scram_verifier(password, &salt, rounds);
        match own.filter(|v| same(v, &made)) {
            Some(v) => {
                if self.known.len() >= KNOWN {
                    self.known.clear();
                }
                self.known.insert(role.to_owned(), (hash, v.to_owned()));
                Ok(())
            }
            None => {
                self.throttle.failed(address, clock);
                let what = format!("password authentication failed for user \"{role}\"");
                let e = Error::new(SqlState::INVALID_PASSWORD, what);
                refused_login(role, Some(asked.peer), &e);
                Err(Verdict::Login)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entrance::access::{Roles, Rule, Source};
    use base::membership::{Membership, READ_ALL_STATS, Role};
    use base::schema::{Change, Object};

    const NOW: (i64, Duration) = (1_000, Duration::from_secs(9));

    /// canon is the superuser without a password unless it is said; sue watches, eve has no rights.
    fn schema(password: Option<&str>) -> Schema {
        let verifier = |p: &str| scram_verifier(p, b"salt", 2);
        let login = |id, name: &str, password: Option<&str>| {
            let mut role = Role::new(id, name);
            role.login = true;
            role.password = password.map(verifier);
            role
        };
        let first = Schema::bootstrap("canon");
        let mut canon = (**first.role(BOOTSTRAP_ROLE).expect("there")).clone();
        canon.password = password.map(verifier);
        let late = Role {
            valid_until: Some(NOW.0 - 1),
            superuser: true,
            ..login(103, "late", Some("late"))
        };
        let watches = Membership {
            id: 200,
            role: READ_ALL_STATS,
            member: 101,
            grantor: BOOTSTRAP_ROLE,
            admin: false,
        };
        let all = [
            canon,
            login(101, "sue", Some("sue's")),
            login(102, "eve", Some("eve's")),
            late,
            login(104, "bare", None),
        ];
        let mut changes: Vec<Change> = all.map(|r| Change::Put(Object::Role(r))).into();
        changes.push(Change::Put(Object::Member(watches)));
        first.apply(&changes)
    }

    fn asked<'a>(peer: &str, secured: bool, authorization: Option<&'a str>) -> Asked<'a> {
        Asked {
            peer: peer.parse().expect("an address"),
            secured,
            host: Some("localhost:8080"),
            forwarded: false,
            authorization,
        }
    }

    fn shown(role: &str, password: &str) -> String {
        format!(
            "Basic {}",
            BASE64_STANDARD.encode(format!("{role}:{password}"))
        )
    }

    fn open(asked: &Asked<'_>, schema: &Schema, entrance: &Entrance) -> Verdict {
        Door::new([7; 16]).open(asked, entrance, schema, NOW)
    }

    const HERE: &str = "127.0.0.1:5";
    const THERE: &str = "192.0.2.1:5";

    #[test]
    fn this_machine_gets_in_as_psql_would() {
        let e = Entrance::default();
        let nothing = asked(HERE, false, None);
        assert_eq!(
            open(&nothing, &schema(None), &e),
            Verdict::In { keys: true }
        );
        assert_eq!(open(&nothing, &schema(Some("p")), &e), Verdict::Login);
        let right = shown("canon", "p");
        let right = asked(HERE, false, Some(&right));
        assert_eq!(
            open(&right, &schema(Some("p")), &e),
            Verdict::In { keys: true }
        );
        let mapped = asked("[::ffff:127.0.0.1]:5", false, None);
        assert_eq!(open(&mapped, &schema(None), &e), Verdict::In { keys: true });
    }

    #[test]
    fn a_name_of_the_web_and_a_proxy_are_not_this_machine() {
        let (e, s) = (Entrance::default(), schema(None));
        for (host, local) in [
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("LOCALHOST", true),
            ("rebound.example:8080", false),
            ("localhost.example", false),
            ("192.0.2.1", false),
        ] {
            let here = Asked {
                host: Some(host),
                ..asked(HERE, false, None)
            };
            let wanted = if local {
                Verdict::In { keys: true }
            } else {
                Verdict::Login
            };
            assert_eq!(open(&here, &s, &e), wanted, "{host}");
        }
        let proxied = Asked {
            forwarded: true,
            ..asked(HERE, false, None)
        };
        assert_eq!(open(&proxied, &s, &e), Verdict::Login);
        // Nor does a role without a password come through it.
        let bare = shown("canon", "");
        let proxied = Asked {
            authorization: Some(&bare),
            ..proxied
        };
        assert_eq!(open(&proxied, &s, &e), Verdict::Login);
    }

    #[test]
    fn other_machines_need_tls_and_a_login() {
        let (e, s) = (Entrance::default(), schema(None));
        let right = shown("sue", "sue's");
        assert!(matches!(
            open(&asked(THERE, false, None), &s, &e),
            Verdict::Refused(_)
        ));
        assert!(matches!(
            open(&asked(THERE, false, Some(&right)), &s, &e),
            Verdict::Refused(_)
        ));
        assert_eq!(open(&asked(THERE, true, None), &s, &e), Verdict::Login);
        let sue = asked(THERE, true, Some(&right));
        assert_eq!(open(&sue, &s, &e), Verdict::In { keys: false });
        let plain = Entrance {
            allow_plain_network: true,
            ..Entrance::default()
        };
        assert_eq!(open(&asked(THERE, false, None), &s, &plain), Verdict::Login);
        let sue = asked(THERE, false, Some(&right));
        assert_eq!(open(&sue, &s, &plain), Verdict::In { keys: false });
        for (role, password) in [
            ("sue", "eve's"),
            ("sue", ""),
            ("nobody", "sue's"),
            ("canon", ""),
            ("bare", ""),
            ("late", "late"),
        ] {
            let wrong = shown(role, password);
            let wrong = asked(THERE, true, Some(&wrong));
            assert_eq!(open(&wrong, &s, &e), Verdict::Login, "{role}");
        }
        let eve = shown("eve", "eve's");
        let eve = open(&asked(THERE, true, Some(&eve)), &s, &e);
        assert!(
            matches!(&eve, Verdict::Refused(why) if why.contains("pg_monitor")),
            "{eve:?}"
        );
    }

    #[test]
    fn a_login_that_is_none_is_no_login() {
        let (e, s) = (Entrance::default(), schema(Some("p")));
        for header in [
            "",
            "Basic",
            "Basic !",
            "Basic bm9jb2xvbg==",
            "Bearer Y2Fub246cA==",
        ] {
            assert_eq!(
                open(&asked(HERE, false, Some(header)), &s, &e),
                Verdict::Login,
                "{header}"
            );
        }
    }

    #[test]
    fn rules_are_asked() {
        let rule = |role: &str, method| Rule {
            from: Source::Anywhere,
            roles: Roles::Role(role.into()),
            database: None,
            tls: None,
            method,
        };
        let e = Entrance {
            access: vec![
                rule("canon", Method::Trust),
                rule("sue", Method::Scram),
                rule("eve", Method::Cert),
            ],
            ..Entrance::default()
        };
        let s = schema(Some("p"));
        assert_eq!(
            open(&asked(HERE, false, None), &s, &e),
            Verdict::In { keys: true }
        );
        // Trust is for this machine: others show a password all the same.
        let bare = shown("canon", "");
        assert_eq!(
            open(&asked(THERE, true, Some(&bare)), &s, &e),
            Verdict::Login
        );
        let sue = shown("sue", "sue's");
        assert_eq!(
            open(&asked(THERE, true, Some(&sue)), &s, &e),
            Verdict::In { keys: false }
        );
        for (role, password) in [("eve", "eve's"), ("late", "late")] {
            let header = shown(role, password);
            let verdict = open(&asked(THERE, true, Some(&header)), &s, &e);
            assert!(matches!(verdict, Verdict::Refused(_)), "{role} {verdict:?}");
        }
    }

    #[test]
    fn wrong_passwords_are_limited_and_a_known_login_goes_on() {
        let (e, s, mut door) = (Entrance::default(), schema(None), Door::new([7; 16]));
        let (right, wrong) = (shown("sue", "sue's"), shown("sue", "x"));
        let mut ask =
            |header: &str, s: &Schema| door.open(&asked(THERE, true, Some(header)), &e, s, NOW);
        assert_eq!(ask(&right, &s), Verdict::In { keys: false });
        for _ in 0..10 {
            assert_eq!(ask(&wrong, &s), Verdict::Login);
        }
        assert!(matches!(ask(&wrong, &s), Verdict::Later(_)));
        assert!(matches!(ask(&shown("eve", "eve's"), &s), Verdict::Later(_)));
        assert_eq!(ask(&right, &s), Verdict::In { keys: false });
        // Another password: what was known counts no more.
        let mut sue = (**s.role_named("sue").expect("there")).clone();
        sue.password = Some(scram_verifier("new", b"salt", 2));
        let changed = s.apply(&[Change::Put(Object::Role(sue))]);
        assert!(matches!(ask(&right, &changed), Verdict::Later(_)));
    }

    #[test]
    fn a_verifier_that_asks_for_too_much_work_is_not_tried() {
        let (e, s) = (Entrance::default(), schema(None));
        let mut sue = (**s.role_named("sue").expect("there")).clone();
        let own = sue.password.take().expect("a verifier");
        sue.password = Some(own.replacen("$2:", "$4000000000:", 1));
        let s = s.apply(&[Change::Put(Object::Role(sue))]);
        let right = shown("sue", "sue's");
        let verdict = open(&asked(THERE, true, Some(&right)), &s, &e);
        assert!(matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
    }
}
