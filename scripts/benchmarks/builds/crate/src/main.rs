use clap::Parser;
use serde::Serialize;

#[derive(Parser, Serialize)]
struct Options {
    pattern: String,
    text: String,
}

fn main() {
    let options = Options::parse();
    let found = regex::Regex::new(&options.pattern).map(|regex| regex.is_match(&options.text));
    println!("{} {found:?}", serde_json::to_string(&options).unwrap_or_default());
}
