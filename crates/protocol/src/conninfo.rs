//! Where a server is, and the role that logs in: `HOST:PORT`, `key=value` words as libpq takes them, or a `postgresql://` URL.
//!
//! A password that is not written there comes from PGPASSWORD when it is needed; it is never printed.
//!
//! Left out on purpose: several hosts, Unix sockets, TLS, service files, `~/.pgpass`.

use crate::DATABASE;
use std::fmt;
use std::time::Duration;

/// A server's address, and the role that logs in there.
#[derive(Clone, PartialEq, Eq)]
pub struct Conninfo {
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Of Canon there is one; peers that are measured have others.
    pub database: String,
    pub connect_timeout: Duration,
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
            "sslmode" if matches!(v, "disable" | "allow" | "prefer") => {}
            _ => return Err(format!("connection parameter \"{key}\" is not supported")),
        }
        Ok(())
    }

    /// The password, here or in PGPASSWORD.
    pub fn password(&self) -> Option<String> {
        let own = self.password.clone();
        own.or_else(|| std::env::var("PGPASSWORD").ok())
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
            "host=h sslmode=require",
            "host=/tmp",
            "host=h nonsense=1",
            "postgresql://h:x/",
            "postgresql://%zz/",
        ] {
            assert!(Conninfo::parse(bad).is_err(), "{bad}");
        }
    }
}
