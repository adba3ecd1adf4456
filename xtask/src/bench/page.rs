//! What result pages have in common: their head, with a command line that makes the page again, and where they go.
//!
//! Left out on purpose: the pages of `report`, which have more to say of the servers.

use crate::{Result, command};
use std::process::Command;

/// Options whose values are places on this machine.
const PLACES: [&str; 8] = [
    "--benchbase",
    "--sysbench-tpcc",
    "--peers",
    "--binary",
    "--directory",
    "--before",
    "--after",
    "--source",
];

/// The title and the lines under it. `command` is without its arguments.
pub fn head(title: &str, command: &str, args: &[String]) -> String {
    let said = |program: &str, args: &[&str]| {
        let out = command::output(Command::new(program).args(args));
        out.map_or("unknown".into(), |s| s.trim().to_owned())
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut models = cpu.lines().filter_map(|l| l.strip_prefix("model name"));
    let model = models.next().and_then(|m| m.split_once(": "));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let commit = said("git", &["describe", "--always", "--dirty"]);
    let built = match args.iter().any(|a| a == "--binary") {
        true => format!("canon: a binary built elsewhere; the checkout is at {commit}"),
        false => format!("canon at {commit}, release"),
    };
    format!(
        "# {title}\n\n- date: {}\n- machine: {} cores, {}, Linux {}; load average before {}\n- {built}\n- command: `{}`\n",
        said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        said("nproc", &[]),
        model.map_or("unknown", |m| m.1),
        said("uname", &["-r"]),
        load.split(' ').take(3).collect::<Vec<_>>().join(" "),
        format!("{command} {}", shown(args)).trim(),
    )
}

/// The arguments without what they say of this machine. A relative path says nothing of it.
fn shown(args: &[String]) -> String {
    let hidden = |i: usize| i > 0 && PLACES.contains(&&*args[i - 1]) && args[i].starts_with('/');
    let show = |(i, arg): (usize, &String)| match hidden(i) {
        true => "…".to_owned(),
        false if arg.contains(' ') => format!("'{arg}'"),
        false => arg.clone(),
    };
    args.iter()
        .enumerate()
        .map(show)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Writes `docs/results/DATE-NAME.md` and its charts (name, SVG) beside it, which the page shows at its end.
pub fn store(name: &str, page: &str, charts: &[(&str, String)]) -> Result<()> {
    let date = command::output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let name = format!("{}-{name}", date.trim());
    let directory = command::root().join("docs").join("results");
    let put = |file: String, text: &str| {
        let path = directory.join(file);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut page = page.trim_end().to_owned() + "\n";
    for (chart, svg) in charts {
        let file = match *chart {
            "" => format!("{name}.svg"),
            part => format!("{name}-{part}.svg"),
        };
        put(file.clone(), svg)?;
        page += &format!("\n![{chart}]({file})\n");
    }
    put(format!("{name}.md"), &page)?;
    println!("written to docs/results/{name}.md");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_shown_without_what_is_only_here() {
        let args = ["--peers", "../peers", "--binary", "/here/canon", "--quick"];
        let args = args.map(String::from);
        assert_eq!(shown(&args), "--peers ../peers --binary … --quick");
        let args = ["--only", "one statement"].map(String::from);
        assert_eq!(shown(&args), "--only 'one statement'");
    }
}
