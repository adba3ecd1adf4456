//! A headless Chromium, driven over the pipe of its debugging protocol: questions in, answers and events out, each a JSON text that ends with a zero byte.
//!
//! `CANON_CHROMIUM` names the program, else it is looked for on the PATH. `cargo xtask clients` installs one. A test without it fails, as
//! with each client that is missing.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// A browser that hangs is ended after so many seconds.
const LIMIT: &str = "900";

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    number: u64,
    /// What the page or the browser complained of.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("CANON_CHROMIUM") {
        return named.into();
    }
    let names = ["chromium-headless-shell", "chromium", "chromium-browser"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = std::env::split_paths(&path).collect();
    let all = names
        .iter()
        .flat_map(|n| directories.iter().map(move |d| d.join(n)));
    let mut found = all.filter(|p| p.is_file());
    found
        .next()
        .expect("no Chromium is here: `cargo xtask clients` installs it")
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

impl Browser {
    /// Starts one with an empty page of this size.
    pub fn start(width: u32, height: u32) -> Browser {
        let profile = tempfile::tempdir().expect("a directory");
        let (questions, answers) = (
            profile.path().join("questions"),
            profile.path().join("answers"),
        );
        pipe(&questions);
        pipe(&answers);
        // The protocol wants its pipes as file descriptors 3 and 4.
        let script =
            "exec timeout --kill-after=5 \"$LIMIT\" \"$0\" \"$@\" 3<\"$QUESTIONS\" 4>\"$ANSWERS\"";
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(program())
            .args([
                "--headless",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                // The page is our own, and the tests may run as root.
                "--no-sandbox",
                "--no-first-run",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .envs([("QUESTIONS", &questions), ("ANSWERS", &answers)])
            .env("LIMIT", LIMIT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let to = OpenOptions::new().write(true).open(&questions);
        let from = File::open(&answers).expect("a pipe");
        let mut browser = Browser {
            child,
            to: to.expect("a pipe"),
            from: BufReader::new(from),
            session: None,
            number: 0,
            complaints: vec![],
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        // Keys go to the page though no window has the focus.
        browser.ask(
            "Emulation.setFocusEmulationEnabled",
            json!({"enabled": true}),
        );
        browser.resize(width, height);
        browser
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut question = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            question["sessionId"] = json!(session);
        }
        let mut bytes = question.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser reads");
        loop {
            let mut bytes = vec![];
            let read = self
                .from
                .read_until(0, &mut bytes)
                .expect("the browser answers");
            assert!(read > 0, "the browser has ended");
            bytes.pop();
            let said: Value = serde_json::from_slice(&bytes).expect("JSON");
            if said["id"] == self.number {
                assert!(said["error"].is_null(), "{method}: {}", said["error"]);
                return said["result"].clone();
            }
            self.listen(&said);
        }
    }

    fn listen(&mut self, event: &Value) {
        let level = |of: &Value| of["level"].as_str().unwrap_or("").to_owned();
        let parameters = &event["params"];
        let bad = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => level(&parameters["entry"]) == "error",
            Some("Runtime.consoleAPICalled") => parameters["type"] == "error",
            _ => false,
        };
        if bad {
            self.complaints.push(parameters.to_string());
        }
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// `light` or `dark`.
    pub fn prefers(&mut self, scheme: &str) {
        let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": feature}));
    }

    pub fn open(&mut self, url: &str) {
        let gone = self.ask("Page.navigate", json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{url}: {}", gone["errorText"]);
    }

    /// What an expression comes to in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", asked);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page.
    pub fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        // What is not there yet is no error.
        let tried =
            format!("(() => {{ try {{ return {expression} }} catch {{ return false }} }})()");
        while self.value(&tried) != true {
            let page = self.value("document.body && document.body.innerText");
            let complaints = &self.complaints;
            assert!(
                Instant::now() < deadline,
                "{expression}\n{complaints:?}\n{page}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The page as a picture (PNG), so many pixels high.
    pub fn picture(&mut self, width: u32, height: u32) -> Vec<u8> {
        self.resize(width, height);
        let shot = self.ask("Page.captureScreenshot", json!({"format": "png"}));
        let coded = shot["data"].as_str().expect("a picture");
        BASE64_STANDARD.decode(coded).expect("Base64")
    }

    /// Presses a key, as `KeyboardEvent.key` names it.
    pub fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.ask("Input.dispatchKeyEvent", event);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
