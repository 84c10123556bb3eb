//! The report as one self-contained HTML page with plots.

use super::{
    case::{Cache, Filters, KeyKind},
    fill::ideal,
    levels::Level,
    plot::{Plot, Series},
    report::{CaseReport, Report},
};

/// Points of the ideal curve, a tenth of a bit apart.
const IDEAL_STEP_BITS: f64 = 0.1;

const REQUESTS_CAPTION: &str = "Data-block requests per lookup of an absent key, by filter memory. \
    Lower is better. The curve is the theoretical minimum. The points of Auto were measured with \
    decreasing filter memory, and the line is the planner's prediction.";

const LATENCIES_CAPTION: &str = "Latency of lookups of absent keys with every block in the cache, by \
    percentile. It includes about 30 ns to read the clock.";

const COLD_CAPTION: &str = "The same with only indexes and filters in memory: each false positive costs a \
    read from the device.";

const RATES_CAPTION: &str = "False-positive rate of the filters of each level, measured and expected. \
    Uniform filters have equal rates on all levels. Planned filters have the highest rate on the \
    level with the most keys.";

/// Returns the page.
pub(crate) fn html(report: &Report) -> String {
    let plots = [
        (requests(report), REQUESTS_CAPTION),
        (latencies(report, Cache::All), LATENCIES_CAPTION),
        (latencies(report, Cache::Cold), COLD_CAPTION),
        (rates(report), RATES_CAPTION),
    ];
    let figures = plots.into_iter().filter_map(|(svg, caption)| {
        Some(format!("<figure>\n{}<figcaption>{caption}</figcaption>\n</figure>\n", svg?))
    });
    let plots: String = figures.collect();
    let faults =
        report.faults.iter().map(|fault| format!("<p><b>Wrong: {}</b></p>\n", text(fault)));
    let faults: String = faults.collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>sieve bench misses</title>\n\
         <style>body {{ font: 16px sans-serif; max-width: 60em; margin: 2em auto; }} \
         pre {{ overflow-x: auto; font-size: 12px; }} figure {{ margin: 2em 0; }} \
         figcaption {{ color: #444; }}</style>\n\
         <h1>Cost of a lookup of an absent key</h1>\n{faults}{plots}<pre>{}</pre>\n</html>\n",
        text(&report.table())
    )
}

/// Plots data-block requests by filter memory.
fn requests(report: &Report) -> Option<String> {
    let keys = report.setup.stored.max(1) as f64;
    let bits = |bytes: u64| bytes as f64 * 8.0 / keys;
    let uniform = report.stores.iter().map(|store| {
        let found = find(report, store.filters, Cache::All, KeyKind::Absent);
        let found = found.map(|case| case.data_block_requests_per_lookup);
        let points = found.map(|requests| (bits(store.filter_memory_bytes), requests));
        let name = store.filters.to_owned();
        Series { name, points: points.into_iter().collect(), has_line: false }
    });
    let swept = |name: &str, value: fn(&super::sweep::Step) -> f64, has_line| Series {
        name: name.to_owned(),
        points: report
            .sweep
            .iter()
            .map(|step| (bits(step.filter_memory_bytes), value(step)))
            .collect(),
        has_line,
    };
    let steps = (report.setup.bits_per_key / IDEAL_STEP_BITS) as u64;
    let curve = (0..=steps).map(|step| {
        let bits = step as f64 * IDEAL_STEP_BITS;
        (bits, ideal(&report.setup.runs, bits))
    });
    let ideal = Series { name: "ideal".to_owned(), points: curve.collect(), has_line: true };
    let series = [
        ideal,
        swept("Auto, memory cut", |step| step.data_block_requests, false),
        swept("Auto, predicted", |step| step.predicted, true),
    ];
    Plot {
        title: "Data-block requests for an absent key",
        x_name: "filter bits per key in memory",
        y_name: "requests per lookup",
        x_label: |bits| format!("{bits:.0}"),
        series: series.into_iter().chain(uniform).collect(),
    }
    .svg()
}

/// Plots the latency distribution of absent keys.
fn latencies(report: &Report, cache: Cache) -> Option<String> {
    // Logarithmic: 90 %, 99 %, 99.9 % are equally far apart.
    let rarity = |quantile: f64| -(1.0 - quantile).log10();
    let series = Filters::ALL.into_iter().filter_map(|filters| {
        let case = find(report, filters.name(), cache, KeyKind::Absent)?;
        let points = report.latency_quantiles.iter().zip(&case.latency_ns);
        let points = points.map(|(quantile, ns)| (rarity(*quantile), *ns as f64)).collect();
        Some(Series { name: filters.name().to_owned(), points, has_line: true })
    });
    Plot {
        title: &format!("Latency of an absent key, {}", cache.name()),
        x_name: "share of lookups below",
        y_name: "ns",
        x_label: |rarity| format!("{} %", 100.0 - 100.0 * 0.1_f64.powf(rarity)),
        series: series.collect(),
    }
    .svg()
}

/// Plots false-positive rates by level.
fn rates(report: &Report) -> Option<String> {
    let rate = |level: &Level| {
        let counters = level.counters;
        let probes = counters.negatives + counters.false_positives;
        (probes > 0).then(|| counters.false_positives as f64 / probes as f64)
    };
    let series = Filters::ALL.into_iter().skip(1).filter_map(|filters| {
        let case = find(report, filters.name(), Cache::All, KeyKind::Absent)?;
        let points =
            case.levels.iter().filter_map(|level| Some((level.level.into(), rate(level)?)));
        let name = format!("{}, measured", filters.name());
        let expected = case
            .levels
            .iter()
            .map(|level| (f64::from(level.level) + 0.08, level.false_positive_rate_expected));
        let of_name = format!("{}, expected", filters.name());
        Some([
            Series { name, points: points.collect(), has_line: false },
            Series { name: of_name, points: expected.collect(), has_line: false },
        ])
    });
    Plot {
        title: "False positives of the filters of each level",
        x_name: "level",
        y_name: "rate",
        x_label: |level| {
            if level.fract().abs() < 0.01 { format!("{level:.0}") } else { String::new() }
        },
        series: series.flatten().collect(),
    }
    .svg()
}

fn find<'a>(
    report: &'a Report,
    filters: &str,
    cache: Cache,
    key_kind: KeyKind,
) -> Option<&'a CaseReport> {
    report.cases.iter().find(|case| {
        case.filters == filters && case.cache == cache.name() && case.key_kind == key_kind.name()
    })
}

/// Escapes text for HTML.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
