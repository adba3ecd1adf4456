//! Where a server is, and the role that logs in: `HOST:PORT`, `key=value` words as libpq takes them, or a `postgresql://` URL.
//!
//! A password that is not written there comes from PGPASSWORD when it is needed; it is never printed. What is not written about TLS comes
//! from PGSSLMODE, PGSSLROOTCERT, PGSSLCERT and PGSSLKEY, and the mode is `prefer` without them.
//!
//! Left out on purpose: several hosts, Unix sockets, service files, `~/.pgpass`, files of TLS that are not named.

use crate::DATABASE;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a client asks of TLS ([`crate::dial`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    Disable,
    #[default]
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl SslMode {
    /// By libpq's name for it. `allow` begins without TLS, so it is `disable` here.
    pub fn named(name: &str) -> Option<SslMode> {
        Some(match name {
            "disable" | "allow" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => return None,
        })
    }
}

/// How a server is to be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    pub mode: SslMode,
    /// Authorities that may have signed the server's certificate, PEM.
    pub root: Option<PathBuf>,
    /// The client's own certificate and key, PEM.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The connection string or the environment says the mode.
    pub said: bool,
}

impl Tls {
    /// As the environment says, which `var` reads; `Err` for a mode that is none.
    fn of(var: impl Fn(&str) -> Option<String>) -> Result<Tls, String> {
        let file = |name: &str| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let mode = var("PGSSLMODE").filter(|v| !v.is_empty());
        let root = file("PGSSLROOTCERT");
        let (certificate, key) = (file("PGSSLCERT"), file("PGSSLKEY"));
        let said = mode.is_some();
        let named = |m: String| SslMode::named(&m).ok_or(format!("PGSSLMODE \"{m}\" is none"));
        Ok(Tls {
            mode: mode.map_or(Ok(SslMode::default()), named)?,
            root,
            certificate,
            key,
            said,
        })
    }
}

/// A server's address, and the role that logs in there.
#[derive(Clone, PartialEq, Eq)]
pub struct Conninfo {
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Of Canon there is one; peers that are measured have others.
    pub database: String,
    pub connect_timeout: Duration,
    pub tls: Tls,
    /// The server has to prove that it knows what the role's password proves: a login without SCRAM is none.
    pub proves: bool,
    password: Option<String>,
}

impl Conninfo {
    /// Reads one; `Err` says what is wrong.
    pub fn parse(text: &str) -> Result<Conninfo, String> {
        let mut p = Conninfo {
            host: String::new(),
            port: 5432,
            user: DATABASE.to_owned(),
            database: DATABASE.to_owned(),
            connect_timeout: Duration::from_secs(10),
            tls: Tls::of(|name| std::env::var(name).ok())?,
            proves: false,
            password: None,
        };
        let text = text.trim();
        if let Some(rest) = text
            .strip_prefix("postgresql://")
            .or_else(|| text.strip_prefix("postgres://"))
        {
            p.url(rest)?;
        } else if text.contains('=') {
            for (k, v) in words(text)? {
                p.set(&k, &v)?;
            }
        } else {
            let (host, port) = text
                .rsplit_once(':')
                .ok_or("not HOST:PORT and no connection string")?;
            p.set("host", host.trim_start_matches('[').trim_end_matches(']'))?;
            p.set("port", port)?;
        }
        let t = &p.tls;
        if t.certificate.is_some() != t.key.is_some() {
            return Err("sslcert and sslkey belong together".into());
        }
        if t.mode >= SslMode::VerifyCa && t.root.is_none() {
            return Err("sslmode verify-ca and verify-full need sslrootcert".into());
        }
        match p.host.as_str() {
            "" => Err("no host".into()),
            h if h.starts_with('/') => Err("a Unix socket cannot be followed".into()),
            _ => Ok(p),
        }
    }

    fn url(&mut self, rest: &str) -> Result<(), String> {
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        if !database.is_empty() {
            self.database = decoded(database)?;
        }
        let (login, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        if !user.is_empty() {
            self.user = decoded(user)?;
        }
        if !password.is_empty() {
            self.password = Some(decoded(password)?);
        }
        let port = address
            .rfind(':')
            .filter(|at| !address[*at..].contains(']'));
        let (host, port) = match port {
            Some(at) => (&address[..at], Some(&address[at + 1..])),
            None => (address, None),
        };
        self.host = decoded(host.trim_start_matches('[').trim_end_matches(']'))?;
        if let Some(port) = port {
            self.set("port", port)?;
        }
        for pair in parameters.split('&').filter(|p| !p.is_empty()) {
            let (k, v) = pair.split_once('=').ok_or("a parameter without a value")?;
            self.set(&decoded(k)?, &decoded(v)?)?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, v: &str) -> Result<(), String> {
        match key {
            "host" | "hostaddr" => self.host = v.to_owned(),
            "port" => {
                let port = v.parse().ok().filter(|p| *p > 0);
                self.port = port.ok_or_else(|| format!("port \"{v}\" is none"))?;
            }
            "user" => self.user = v.to_owned(),
            "password" => self.password = Some(v.to_owned()),
            "connect_timeout" => {
                let s: u64 = v.parse().map_err(|_| "connect_timeout is in seconds")?;
                self.connect_timeout = Duration::from_secs(s.max(1));
            }
            "dbname" => self.database = v.to_owned(),
            // The node has a name of its own.
            "application_name" => {}
            "sslmode" => {
                let mode = SslMode::named(v).ok_or_else(|| format!("sslmode \"{v}\" is none"))?;
                (self.tls.mode, self.tls.said) = (mode, true);
            }
            "sslrootcert" => self.tls.root = Some(v.into()),
            "sslcert" => self.tls.certificate = Some(v.into()),
            "sslkey" => self.tls.key = Some(v.into()),
            _ => return Err(format!("connection parameter \"{key}\" is not supported")),
        }
        Ok(())
    }

    /// The password, here or in PGPASSWORD.
    pub fn password(&self) -> Option<String> {
        let own = self.password.clone();
        own.or_else(|| std::env::var("PGPASSWORD").ok())
    }

    /// The same, with what a node or a proxy asks of TLS where the address does not say the mode. With authorities, those of the address before those of
    /// the cluster, that is a certificate of the host. Else it is TLS if the other end has it, and on other machines always, unless plain connections
    /// are allowed. A certificate of the client changes none of this.
    pub fn secured(mut self, authorities: Option<&Path>, allow_plain_network: bool) -> Conninfo {
        if self.tls.said {
            return self;
        }
        let own = self.tls.root.take();
        self.tls.root = own.or_else(|| authorities.map(Path::to_owned));
        self.tls.mode = match &self.tls.root {
            Some(_) => SslMode::VerifyFull,
            None if self.is_here() || allow_plain_network => SslMode::Prefer,
            None => SslMode::Require,
        };
        self
    }

    /// Whether the address is the loopback of this machine.
    pub fn is_here(&self) -> bool {
        match self.host.parse::<std::net::IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }

    /// As a connection string without the password.
    pub fn conninfo(&self) -> String {
        format!("host={} port={} user={}", self.host, self.port, self.user)
    }
}

impl fmt::Display for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.conninfo())
    }
}

/// `key = 'a value'` words; inside quotes a backslash takes the next character as it is.
fn words(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut out = Vec::new();
    let mut c = text.chars().peekable();
    loop {
        while c.next_if(|x| x.is_whitespace()).is_some() {}
        if c.peek().is_none() {
            return Ok(out);
        }
        let mut key = String::new();
        while let Some(x) = c.next_if(|x| !x.is_whitespace() && *x != '=') {
            key.push(x);
        }
        while c.next_if(|x| x.is_whitespace()).is_some() {}
        if c.next() != Some('=') {
            return Err(format!("\"=\" is missing after \"{key}\""));
        }
        while c.next_if(|x| x.is_whitespace()).is_some() {}
        let quoted = c.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match c.next() {
                Some('\'') if quoted => break,
                Some('\\') => value.extend(c.next()),
                Some(x) if !quoted && x.is_whitespace() => break,
                Some(x) => value.push(x),
                None if quoted => return Err("a quote is not closed".into()),
                None => break,
            }
        }
        out.push((key, value));
    }
}

/// `%41` and such.
fn decoded(s: &str) -> Result<String, String> {
    let bad = || format!("\"{s}\" is not percent-encoded");
    let mut out = Vec::new();
    let mut bytes = s.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let two = [bytes.next().ok_or_else(bad)?, bytes.next().ok_or_else(bad)?];
        let hex = std::str::from_utf8(&two).map_err(|_| bad())?;
        out.push(u8::from_str_radix(hex, 16).map_err(|_| bad())?);
    }
    String::from_utf8(out).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        let p = Conninfo::parse("db.example:6000").unwrap();
        assert_eq!(
            (p.host.as_str(), p.port, p.user.as_str()),
            ("db.example", 6000, "canon")
        );
        assert_eq!(Conninfo::parse("[::1]:5433").unwrap().host, "::1");
        let p = Conninfo::parse(r"host=h port = 7 user='a b' password='p\'q' connect_timeout=3")
            .unwrap();
        assert_eq!((p.host.as_str(), p.port, p.user.as_str()), ("h", 7, "a b"));
        assert_eq!(p.password.as_deref(), Some("p'q"));
        assert_eq!(p.connect_timeout, Duration::from_secs(3));
        let p = Conninfo::parse("postgresql://rep:s%3Ac@[::1]:99/canon?connect_timeout=1").unwrap();
        assert_eq!(
            (p.host.as_str(), p.port, p.user.as_str()),
            ("::1", 99, "rep")
        );
        assert_eq!(p.password.as_deref(), Some("s:c"));
        assert_eq!(Conninfo::parse("postgres://h").unwrap().port, 5432);
    }

    #[test]
    fn what_is_asked_of_tls() {
        let p = Conninfo::parse("host=h sslmode=verify-full sslrootcert=/r").expect("parsed");
        assert_eq!((p.tls.mode, p.tls.said), (SslMode::VerifyFull, true));
        assert_eq!(p.tls.root, Some("/r".into()));
        let url = "postgresql://h/db?sslmode=require&sslcert=%2Fc&sslkey=%2Fk";
        let p = Conninfo::parse(url).expect("parsed");
        assert_eq!(
            (p.tls.mode, p.tls.key),
            (SslMode::Require, Some("/k".into()))
        );
        let all = |name: &str| match name {
            "PGSSLMODE" => Some("verify-ca".to_owned()),
            "PGSSLROOTCERT" => Some("/r".to_owned()),
            _ => None,
        };
        let t = Tls::of(all).expect("read");
        assert_eq!((t.mode, t.said), (SslMode::VerifyCa, true));
        assert!(!Tls::of(|_| None).expect("nothing").said);
        assert!(Tls::of(|_| Some("x".into())).is_err());
    }

    #[test]
    fn what_nodes_ask_of_each_other() {
        let mode = |at: &str, root: Option<&str>, plain: bool| {
            let p = Conninfo::parse(at).expect("parsed");
            p.secured(root.map(Path::new), plain).tls.mode
        };
        for near in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
            assert_eq!(mode(near, None, false), SslMode::Prefer, "{near}");
            assert_eq!(mode(near, Some("/r"), true), SslMode::VerifyFull, "{near}");
        }
        for far in ["10.0.0.1:1", "db.example:1"] {
            assert_eq!(mode(far, None, false), SslMode::Require, "{far}");
            assert_eq!(mode(far, None, true), SslMode::Prefer, "{far}");
        }
        let said = "host=10.0.0.1 sslmode=disable";
        assert_eq!(mode(said, Some("/r"), false), SslMode::Disable);
        // What says nothing of the server leaves the cluster's authorities in force.
        let own = "host=10.0.0.1 sslcert=c sslkey=k";
        assert_eq!(mode(own, Some("/r"), true), SslMode::VerifyFull);
        assert_eq!(mode(own, None, false), SslMode::Require);
        let p = Conninfo::parse(own).expect("parsed");
        let p = p.secured(Some(Path::new("/r")), false);
        assert_eq!(
            (p.tls.root, p.tls.key),
            (Some("/r".into()), Some("k".into()))
        );
        let other = "host=10.0.0.1 sslrootcert=/other";
        assert_eq!(mode(other, Some("/r"), true), SslMode::VerifyFull);
        let p = Conninfo::parse(other).expect("parsed");
        let p = p.secured(Some(Path::new("/r")), true);
        assert_eq!(p.tls.root, Some("/other".into()));
        let environment = |name: &str| name.starts_with("PGSSLCERT").then(|| "c".to_owned());
        assert!(!Tls::of(environment).expect("read").said);
    }

    #[test]
    fn a_password_is_not_shown() {
        let p = Conninfo::parse("host=h password=secret").unwrap();
        for shown in [format!("{p}"), format!("{p:?}"), p.conninfo()] {
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn mistakes_are_found() {
        for bad in [
            "",
            "h",
            "h:",
            "h:0",
            ":5",
            "port=5",
            "host=h host",
            "host='h",
            "host=h sslmode=encrypt",
            "host=h sslmode=verify-full",
            "host=h sslcert=c",
            "host=/tmp",
            "host=h nonsense=1",
            "postgresql://h:x/",
            "postgresql://%zz/",
        ] {
            assert!(Conninfo::parse(bad).is_err(), "{bad}");
        }
    }
}
