//! Plots: what the others cost over what SieveDB costs, one bar for each engine and case.

use plotters::{
    chart::ChartBuilder,
    coord::combinators::IntoLogRange as _,
    drawing::{DrawingArea, IntoDrawingArea as _},
    element::{PathElement, Rectangle, Text},
    prelude::SVGBackend,
    style::{
        BLACK, Color as _, IntoFont as _, RGBColor, TextStyle, WHITE,
        text_anchor::{HPos, Pos, VPos},
    },
};

use crate::{
    case::{Family, Fit},
    contestant::Contestant,
    failure::Result,
    report::{Median, Report, ratio_text, time},
};

const WIDTH: u32 = 1000;

/// Limit of the bars, because larger ratios would leave no room for the others.
const RATIO_MIN: f64 = 0.05;
const RATIO_MAX: f64 = 100.0;

/// Height of a bar, and of the gap between two cases.
const BAR: u32 = 17;
const GAP: u32 = 10;

/// Room for captions at the sides.
const LEFT: u32 = 260;
const RIGHT: u32 = 190;
const TOP: u32 = 40;
const AXIS: u32 = 46;

/// Colours that remain distinguishable with red-green colour blindness. Source: Okabe and Ito,
/// "Color Universal Design", 2008; the last ones are browns and greys.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(240, 190, 150),
    RGBColor(0, 158, 115),
    RGBColor(150, 215, 195),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(130, 130, 130),
];

/// Transparent background; light text and dark grid for readers who prefer dark pages.
const STYLE: &str = r##"
<style>
style+rect{fill:none}
@media (prefers-color-scheme: dark){
text{fill:#DDDDDD}
line[stroke="#000000"],polyline[stroke="#000000"]{stroke:#DDDDDD}
line[stroke="#EEEEEE"]{stroke:#333333}
}
</style>"##;

/// Cases of a plot, its file name and its caption.
const PLOTS: [(Family, Fit, &str, &str); 8] = [
    (Family::Writes, Fit::Cached, "writes.svg", "Writes"),
    (Family::Reads, Fit::Cached, "reads.svg", "Point reads, data in the cache"),
    (Family::Scans, Fit::Cached, "scans.svg", "Scans, data in the cache"),
    (Family::Ycsb, Fit::Cached, "ycsb.svg", "YCSB, data in the cache"),
    (Family::Writes, Fit::TenTimes, "writes-10x.svg", "Writes, data 10 times the memory"),
    (Family::Reads, Fit::TenTimes, "reads-10x.svg", "Point reads, data 10 times the memory"),
    (Family::Scans, Fit::TenTimes, "scans-10x.svg", "Scans, data 10 times the memory"),
    (Family::Ycsb, Fit::TenTimes, "ycsb-10x.svg", "YCSB, data 10 times the memory"),
];

/// The plots for which there are figures, with their file names.
pub(crate) fn plots(report: &Report) -> Result<Vec<(&'static str, String)>> {
    let mut plots = Vec::new();
    for (family, fit, name, caption) in PLOTS {
        let here = |rows: &&[Median]| {
            let case = rows[0].case;
            case.workload.family() == family && case.fit == fit && rows[0].ratio.is_some()
        };
        let cases: Vec<&[Median]> = report.cases().filter(here).collect();
        if !cases.is_empty() {
            plots.push((name, svg(caption, &cases)?));
        }
    }
    Ok(plots)
}

/// The colour of a contestant, the same in all plots.
fn colour(contestant: Contestant) -> RGBColor {
    let place = Contestant::ALL.iter().position(|&one| one == contestant).unwrap_or(0);
    COLOURS[place % COLOURS.len()]
}

/// One plot: the cases from top to bottom, in each a bar for each contestant.
fn svg(caption: &str, cases: &[&[Median]]) -> Result<String> {
    let bars: u32 = cases.iter().map(|rows| rows.len() as u32).sum();
    let inner = bars * BAR + (cases.len() as u32 + 1) * GAP;
    let (low, high) = bounds(cases);
    let mut svg = String::new();
    {
        let size = (WIDTH, TOP + inner + AXIS);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let title =
            format!("{caption}: time per operation over that of SieveDB (longer is slower)");
        area.draw(&Text::new(title, (16, 12), ("sans-serif", 18).into_font()))?;
        let mut chart = ChartBuilder::on(&area)
            .margin_top(TOP)
            .margin_right(RIGHT)
            .set_label_area_size(plotters::chart::LabelAreaPosition::Left, LEFT)
            .set_label_area_size(plotters::chart::LabelAreaPosition::Bottom, AXIS)
            // From top to bottom.
            .build_cartesian_2d((low..high).log_scale(), inner..0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(RGBColor(238, 238, 238))
            .x_desc("× SieveDB, CPU time (real time of opens and synced writes), logarithmic")
            .x_label_formatter(&|ratio| format!("{ratio}"))
            .draw()?;
        let mut top = GAP;
        for rows in cases {
            let middle = top + rows.len() as u32 * BAR / 2;
            case_name(&area, &rows[0].case.to_string(), TOP + middle)?;
            for row in *rows {
                let ratio = row.ratio.unwrap_or(1.0);
                let end = ratio.clamp(low, high);
                let style = colour(row.contestant).filled();
                chart
                    .draw_series([Rectangle::new([(1.0, top + 1), (end, top + BAR - 1)], style)])?;
                let name = format!(
                    "{} {} × ({})",
                    row.contestant.title(),
                    ratio_text(ratio),
                    time(row.cost_ns())
                );
                let text = TextStyle::from(("sans-serif", 12).into_font())
                    .pos(Pos::new(HPos::Left, VPos::Center));
                let right = end.max(1.0) * 1.02;
                chart.draw_series([Text::new(name, (right, top + BAR / 2), text)])?;
                top += BAR;
            }
            top += GAP;
        }
        chart.draw_series([PathElement::new([(1.0, 0), (1.0, inner)], BLACK.stroke_width(1))])?;
        area.present()?;
    }
    let root = svg.find('>').ok_or("a plot without a root")? + 1;
    svg.insert_str(root, STYLE);
    svg.push('\n');
    Ok(svg)
}

/// The name of a case, left of its bars.
fn case_name(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    name: &str,
    middle: u32,
) -> Result<()> {
    let style =
        TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Right, VPos::Center));
    let place = (i32::try_from(LEFT - 12)?, i32::try_from(middle)?);
    Ok(area.draw(&Text::new(name.to_owned(), place, style))?)
}

/// The ratios of the axis: room for all bars.
fn bounds(cases: &[&[Median]]) -> (f64, f64) {
    let ratios = cases.iter().flat_map(|rows| rows.iter()).filter_map(|row| row.ratio);
    let (low, high) = ratios.fold((1.0_f64, 1.0_f64), |(low, high), ratio| {
        (low.min(ratio.max(RATIO_MIN)), high.max(ratio.min(RATIO_MAX)))
    });
    (low * 0.9, (high * 1.1).max(2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case::{Case, Workload},
        figures::tests::all,
        machine::Machine,
        report::tests::measurement,
        settings,
    };

    #[test]
    fn each_family_has_a_plot_with_engine_names() {
        let mut measurements = Vec::new();
        for case in Case::all(&Workload::ALL, &Fit::ALL, 2) {
            for (place, &contestant) in (0_i32..).zip(Contestant::ALL) {
                // Some are faster, some slower than the first.
                let figures = all(10.0 * 4.0_f64.powi(if place % 2 == 0 { place } else { -place }));
                measurements.push(measurement(contestant, case, 0, figures));
            }
        }
        let machine = Machine::look().unwrap();
        let mut report = Report::new(String::new(), machine, settings::small(), measurements);
        assert!(plots(&report).unwrap().is_empty());
        report.conclude();
        let plots = plots(&report).unwrap();
        assert_eq!(plots.len(), PLOTS.len());
        for (name, svg) in plots {
            assert!(svg.starts_with("<svg") && svg.contains("SieveDB 1.00"), "{name}");
            let background = svg.find("<rect").expect("a background");
            assert!(svg[..background].ends_with("</style>\n"), "{name}");
            for contestant in Contestant::ALL {
                assert!(svg.contains(&format!("{} ", contestant.title())), "{name}");
            }
        }
    }
}
