//! A client's first message, and what of it is for the proxy.

use super::route::Attrs;
use base::{Error, Result, SqlState};
use protocol::startup::{self, Startup};

/// By these names a client says which kind of node it wants, in the start-up message or in its `options`.
const ATTRS: [&str; 2] = ["target_session_attrs", "canon.target_session_attrs"];

/// What a client said first.
#[derive(Debug, PartialEq, Eq)]
pub struct Hello {
    pub user: String,
    pub database: String,
    pub attrs: Option<Attrs>,
    /// All other parameters, as the nodes get them.
    pub parameters: Vec<(String, String)>,
    pub minor: u16,
}

fn bad(code: SqlState, what: &str) -> Error {
    Error::new(code, what)
}

impl Hello {
    /// Reads a start-up message, from its version on.
    pub fn read(message: &[u8]) -> Result<Hello> {
        let startup = Startup::read(message)?;
        let mut hello = Hello {
            user: String::new(),
            database: String::new(),
            attrs: None,
            parameters: Vec::new(),
            minor: startup.minor,
        };
        for (name, value) in &startup.parameters {
            hello.parameter(name, value)?;
        }
        if hello.user.is_empty() {
            let what = "no PostgreSQL user name specified in startup packet";
            return Err(bad(SqlState::INVALID_AUTHORIZATION, what));
        }
        if hello.database.is_empty() {
            hello.database = hello.user.clone();
        }
        Ok(hello)
    }

    fn parameter(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "user" => self.user = value.to_owned(),
            "database" => self.database = value.to_owned(),
            "replication" if !matches!(value, "false" | "off" | "no" | "0") => {
                let what = "replication through a proxy; replicas connect to their primary";
                return Err(Error::unsupported(what));
            }
            "replication" => {}
            // These are the proxy's to say.
            startup::SESSION_USER | startup::RELAYED | startup::NODE => {
                let what = format!("{name} through a proxy");
                return Err(Error::unsupported(&what));
            }
            "options" => {
                let (options, attrs) = take_attrs(value);
                if let Some(v) = attrs {
                    self.wants(&v)?;
                }
                if !options.is_empty() {
                    self.parameters.push((name.to_owned(), options));
                }
            }
            _ if ATTRS.contains(&name) => self.wants(value)?,
            _ => self.parameters.push((name.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn wants(&mut self, value: &str) -> Result<()> {
        let attrs = Attrs::parse(value).ok_or_else(|| {
            bad(
                SqlState::INVALID_PARAMETER_VALUE,
                &format!("invalid target_session_attrs value: \"{value}\""),
            )
        })?;
        self.attrs = Some(attrs);
        Ok(())
    }

    /// The start-up message for a node, with more parameters.
    pub fn message(&self, more: &[(&str, &str)]) -> Vec<u8> {
        let own = [("user", &*self.user), ("database", &*self.database)];
        let parameters = self.parameters.iter().map(|(k, v)| (&**k, &**v));
        let more = more.iter().copied();
        startup::message(self.minor, own.into_iter().chain(parameters).chain(more))
    }
}

/// Takes `-c target_session_attrs=…` out of the words of `options`.
fn take_attrs(options: &str) -> (String, Option<String>) {
    // Words end at blanks that no backslash stands before.
    let (mut words, mut word, mut escaped) = (Vec::new(), String::new(), false);
    for c in options.chars() {
        if c.is_whitespace() && !escaped {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    words.push(word);
    words.retain(|w| !w.is_empty());
    let value = |w: &str| {
        let (name, v) = w.split_once('=')?;
        ATTRS.contains(&name).then(|| v.to_owned())
    };
    let (mut kept, mut found): (Vec<String>, _) = (Vec::new(), None);
    for w in words {
        let bare = w.strip_prefix("--").or_else(|| w.strip_prefix("-c"));
        if let Some(v) = value(bare.unwrap_or(&w)) {
            found = Some(v);
            if bare.is_none() && kept.last().is_some_and(|k| k == "-c") {
                kept.pop();
            }
        } else {
            kept.push(w);
        }
    }
    (kept.join(" "), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Hello> {
        let mut m = vec![0, 3, 0, 0];
        for w in words {
            m.extend_from_slice(w.as_bytes());
            m.push(0);
        }
        m.push(0);
        Hello::read(&m)
    }

    #[test]
    fn what_is_for_the_proxy_is_taken_out() {
        let h = read(&[
            "user",
            "a",
            "options",
            "-c x=1 -c target_session_attrs=standby --y=a\\ b",
        ]);
        let h = h.unwrap();
        assert_eq!((h.user.as_str(), h.database.as_str()), ("a", "a"));
        assert_eq!(h.attrs, Some(Attrs::Standby));
        assert_eq!(
            h.parameters,
            [("options".into(), "-c x=1 --y=a\\ b".into())]
        );
        let again = Hello::read(&h.message(&[])[4..]).unwrap();
        assert_eq!((again.parameters, again.attrs), (h.parameters, None));
        let h = read(&[
            "user",
            "a",
            "database",
            "d",
            "target_session_attrs",
            "read-write",
        ])
        .unwrap();
        assert_eq!((h.attrs, h.parameters.len()), (Some(Attrs::Primary), 0));
    }

    #[test]
    fn mistakes_are_refused() {
        for (words, code) in [
            (&["database", "d"][..], "28000"),
            (&["user", "a", "target_session_attrs", "near"], "22023"),
            (&["user", "a", "replication", "canon"], "0A000"),
            (&["user", "a", "canon.session_user", "canon"], "0A000"),
            (&["user", "a", "canon.relayed", "on"], "0A000"),
            (&["user", "a", "canon.node", "b"], "0A000"),
        ] {
            assert_eq!(read(words).unwrap_err().code().code(), code, "{words:?}");
        }
        assert!(Hello::read(&[0, 2, 0, 0, 0]).is_err() && Hello::read(&[0]).is_err());
    }
}
