//! Which role may come from where: rules in order, of which the first that fits decides.
//!
//! ```text
//! address, TLS or not, database, role ──▶ first rule that fits ──▶ scram | cert | trust | reject
//!                                         none fits            ──▶ refused
//! no rules at all ──▶ roles with a password prove it; those without come from this machine (`allow_passwordless_network`)
//! ```
//! The idea is that of PostgreSQL's `pg_hba.conf`. A rule says only which role is asked, and how: the role still has to exist, to be allowed to log
//! in, and to prove itself. Nodes of the cluster that prove the cluster's secret and log in as no role are not asked.
//!
//! Pure: it knows no schema and no socket. What is a member of what, it is told.
//!
//! Left out on purpose: names of hosts, maps of users, other methods of PostgreSQL (ldap, gss, peer).

use base::{Error, Result, SqlState};
use std::net::IpAddr;

/// How a role proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By its password. A role without one does not get in.
    Scram,
    /// By a certificate that an authority of `tls.client_ca` has signed, whose common name is the role's.
    Cert,
    /// Not at all.
    Trust,
    /// It does not get in.
    Reject,
}

/// Where connections come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Anywhere,
    /// A Unix socket.
    Local,
    /// Addresses that begin with so many bits of this one.
    Net(IpAddr, u8),
}

/// The roles that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roles {
    All,
    Role(String),
    /// Members of this role, however many roles lie between, and the role itself.
    MembersOf(String),
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub from: Source,
    pub roles: Roles,
    /// None: all, and replication.
    pub database: Option<String>,
    /// Only connections inside of TLS, or only such as are not.
    pub tls: Option<bool>,
    pub method: Method,
}

/// What a connection is like that wants in.
#[derive(Clone, Copy, Debug)]
pub struct Wants<'a> {
    /// None: a Unix socket.
    pub address: Option<IpAddr>,
    pub tls: bool,
    pub role: &'a str,
    pub database: &'a str,
    /// A node's connection, which rules name `replication` in place of a database.
    pub replication: bool,
}

impl Source {
    /// `any`, `local`, an address, or an address with the bits that count, as `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<Source> {
        let (address, bits) = match text {
            "any" => return Some(Source::Anywhere),
            "local" => return Some(Source::Local),
            _ => match text.split_once('/') {
                Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
                None => (text, None),
            },
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Source::Net(address, bits))
    }

    fn fits(self, address: Option<IpAddr>) -> bool {
        match (self, address.map(|a| a.to_canonical())) {
            (Source::Anywhere, _) => true,
            (Source::Local, address) => address.is_none(),
            (Source::Net(IpAddr::V4(net), bits), Some(IpAddr::V4(a))) => {
                let differ = u32::from(net) ^ u32::from(a);
                differ.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
            }
            (Source::Net(IpAddr::V6(net), bits), Some(IpAddr::V6(a))) => {
                let differ = u128::from(net) ^ u128::from(a);
                differ.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
            }
            (Source::Net(..), _) => false,
        }
    }
}

impl Rule {
    fn fits(&self, w: &Wants<'_>, is_member: &impl Fn(&str) -> bool) -> bool {
        let database = match &self.database {
            None => true,
            Some(d) => {
                d == if w.replication {
                    "replication"
                } else {
                    w.database
                }
            }
        };
        database
            && self.tls.is_none_or(|tls| tls == w.tls)
            && self.from.fits(w.address)
            && match &self.roles {
                Roles::All => true,
                Roles::Role(name) => name == w.role,
                Roles::MembersOf(name) => is_member(name),
            }
    }
}

/// How the role proves itself: what the first rule says that fits. `is_member`: whether the role is a member of the one with this name.
/// 28000 where none fits, or one that rejects.
pub fn decide(rules: &[Rule], w: &Wants<'_>, is_member: impl Fn(&str) -> bool) -> Result<Method> {
    let rule = rules.iter().find(|r| r.fits(w, &is_member));
    match rule.map(|r| r.method) {
        Some(Method::Reject) => Err(refused("an access rule rejects the connection", w)),
        Some(method) => Ok(method),
        None => Err(refused("no access rule lets in the connection", w)),
    }
}

fn refused(what: &str, w: &Wants<'_>) -> Error {
    let host = w.address.map_or("[local]".to_owned(), |a| a.to_string());
    let database = if w.replication {
        "replication"
    } else {
        w.database
    };
    let tls = if w.tls { "TLS" } else { "no encryption" };
    let client = format!(
        "host \"{host}\", user \"{}\", database \"{database}\", {tls}",
        w.role
    );
    Error::new(
        SqlState::INVALID_AUTHORIZATION,
        format!("{what} for {client}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(from: &str, roles: Roles, method: Method) -> Rule {
        Rule {
            from: Source::parse(from).expect("a place"),
            roles,
            database: None,
            tls: None,
            method,
        }
    }

    fn wants<'a>(address: &str, role: &'a str) -> Wants<'a> {
        Wants {
            address: (!address.is_empty()).then(|| address.parse().expect("an address")),
            tls: false,
            role,
            database: "canon",
            replication: false,
        }
    }

    #[test]
    fn the_first_that_fits_decides() {
        let rules = [
            rule("10.1.0.0/16", Roles::Role("eve".into()), Method::Reject),
            rule("10.0.0.0/8", Roles::MembersOf("staff".into()), Method::Cert),
            rule("10.0.0.0/8", Roles::All, Method::Scram),
            rule("local", Roles::All, Method::Trust),
        ];
        let ask = |address: &str, role: &str| {
            let staff = |group: &str| group == "staff" && role == "sue";
            decide(&rules, &wants(address, role), staff).map_err(|e| e.code())
        };
        let refused = Err(SqlState::INVALID_AUTHORIZATION);
        assert_eq!(ask("10.1.2.3", "eve"), refused);
        assert_eq!(ask("10.2.2.3", "eve"), Ok(Method::Scram));
        assert_eq!(ask("::ffff:10.1.2.3", "eve"), refused);
        assert_eq!(ask("10.1.2.3", "sue"), Ok(Method::Cert));
        assert_eq!(ask("", "sue"), Ok(Method::Trust));
        assert_eq!(ask("11.0.0.1", "sue"), refused);
        assert_eq!(ask("::1", "sue"), refused);
    }

    #[test]
    fn tls_and_database_are_conditions() {
        let rules = [
            Rule {
                tls: Some(true),
                database: Some("canon".into()),
                ..rule("any", Roles::All, Method::Scram)
            },
            Rule {
                database: Some("replication".into()),
                ..rule("any", Roles::All, Method::Trust)
            },
        ];
        let ask = |w: Wants<'_>| decide(&rules, &w, |_| false).ok();
        let plain = wants("192.0.2.1", "a");
        assert_eq!(ask(plain), None);
        assert_eq!(ask(Wants { tls: true, ..plain }), Some(Method::Scram));
        let node = Wants {
            replication: true,
            ..plain
        };
        assert_eq!(ask(node), Some(Method::Trust));
        let other = Wants {
            tls: true,
            database: "other",
            ..plain
        };
        assert_eq!(ask(other), None);
    }

    #[test]
    fn places_are_read() {
        for (text, address, fits) in [
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("192.0.2.6/31", "192.0.2.7", true),
            ("2001:db8::/32", "2001:db8:1::5", true),
            ("2001:db8::/32", "2001:db9::", false),
        ] {
            let from = Source::parse(text).expect(text);
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(from.fits(Some(address)), fits, "{text} {address}");
        }
        for bad in ["", "here", "10.0.0.0/33", "10.0.0/8", "::/129", "1.2.3.4/"] {
            assert_eq!(Source::parse(bad), None, "{bad}");
        }
    }
}
