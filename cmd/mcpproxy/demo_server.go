package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/spf13/cobra"
)

// demoServerCommand is the MCP server that the demo stands in front of: the office of a small harbour over stdio. It is
// made with another MCP implementation than the proxy's own wire, so that the demo shows two programs that meet.
func demoServerCommand() *cobra.Command {
	return &cobra.Command{Use: "demo-server", Short: "The demo's harbour office, an MCP server over stdio",
		Hidden: true, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return server.NewStdioServer(harbourServer()).Listen(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		}}
}

// harbourServer is a harbour office as it stands in the morning of harbourDay. It knows no clock and no network: the
// same calls in the same order have the same answers.
func harbourServer() *server.MCPServer {
	s := server.NewMCPServer("harbour-office", "1.0.0", server.WithToolCapabilities(false),
		server.WithInstructions("The office of a small harbour: ships, berths, tides, pilots, crews, cargo, dues "+
			"and the log book. Dates are "+
			"YYYY-MM-DD, times HH:MM harbour time. Today is "+harbourDay+"."))
	s.AddTools(openHarbour().tools()...)
	return s
}

const (
	harbourDay = "2026-01-05"
	logYear    = 2025 // the year whose log book is complete
	logLines   = 5000
)

// harbour is the office's books.
type harbour struct {
	mu       sync.Mutex // over all fields
	ships    []*ship
	berths   []*berth
	invoices []*invoice
	log      []string // of harbourDay
	arrivals []string
	signal   string // storm signal
	serial   int    // of bookings, orders and invoices
}

type ship struct {
	imo, name, kind, flag string
	length, draught       float64 // metres
	crew                  []string
	cargo                 []string
}

type berth struct {
	Berth   string  `json:"berth"`
	Length  float64 `json:"lengthM"`
	Depth   float64 `json:"depthM"`
	Use     string  `json:"use"`
	Ship    string  `json:"ship,omitempty"`
	Until   string  `json:"until,omitempty"`
	Booking string  `json:"booking,omitempty"`
}

type invoice struct {
	number, ship, state string
	nights              int
	amount              float64
}

func openHarbour() *harbour {
	return &harbour{
		ships: []*ship{
			{"9301842", "Annalisa", "container", "DE", 134, 7.6, []string{"H. Brandt, master",
				"L. Okafor, chief engineer", "P. Nowak, mate"}, []string{"412 t machine parts", "96 t paper"}},
			{"9417720", "Kestrel", "ro-ro", "NO", 118, 5.9, []string{"I. Solberg, master", "A. Lind, mate"},
				[]string{"64 trailers"}},
			{"9188034", "Ocean Maid", "bulk", "MT", 162, 8.4, []string{"R. Vella, master",
				"J. Santos, chief engineer"}, []string{"11,200 t barley"}},
			{"9550216", "Sint Joris", "tanker", "NL", 109, 6.8, []string{"W. de Boer, master"},
				[]string{"4,300 t gas oil, UN 1202"}},
			{"8813427", "Maribel", "fishing", "FR", 31, 4.1, []string{"Y. Le Goff, skipper"},
				[]string{"8 t mackerel on ice"}},
			{"9620993", "Polar Tern", "container", "IS", 127, 7.1, []string{"G. Jonsdottir, master",
				"E. Arnason, mate"}, []string{"310 t frozen cod"}},
			{"9078245", "Duchess of Fife", "passenger", "GB", 88, 3.9, []string{"M. Reid, master", "C. Hale, purser"},
				nil},
			{"9733501", "Baltic Amber", "bulk", "LT", 145, 7.9, []string{"V. Petraitis, master"},
				[]string{"9,050 t fertiliser, UN 2067"}},
		},
		berths: []*berth{
			{Berth: "Q1", Length: 180, Depth: 9, Use: "container", Ship: "Annalisa", Until: "2026-01-07",
				Booking: "B-100"},
			{Berth: "Q2", Length: 180, Depth: 9, Use: "bulk", Ship: "Ocean Maid", Until: "2026-01-09",
				Booking: "B-101"},
			{Berth: "Q3", Length: 140, Depth: 7.5, Use: "general"},
			{Berth: "R1", Length: 130, Depth: 6.5, Use: "ro-ro"},
			{Berth: "T1", Length: 150, Depth: 8, Use: "tanker", Ship: "Sint Joris", Until: "2026-01-06",
				Booking: "B-102"},
			{Berth: "F1", Length: 60, Depth: 5, Use: "fishing"},
		},
		invoices: []*invoice{{"I-500", "Maribel", "paid", 3, 223.20}, {"I-501", "Duchess of Fife", "open", 2, 422.40},
			{"I-502", "Polar Tern", "open", 4, 1219.20}},
		arrivals: []string{
			harbourDay + " 14:20 Kestrel (IMO 9417720) from Bergen",
			"2026-01-06 06:10 Polar Tern (IMO 9620993) from Reykjavik",
			"2026-01-07 09:00 Baltic Amber (IMO 9733501) from Klaipeda",
		},
		signal: "none", serial: 700,
	}
}

// Arguments that many tools share.
func argIMO() mcp.ToolOption {
	return mcp.WithString("imo", mcp.Required(), mcp.Pattern("^[0-9]{7}$"),
		mcp.Description("IMO number of the ship, seven digits without the letters, as find_ships shows it"))
}

func argDate(about string, opts ...mcp.PropertyOption) mcp.ToolOption {
	return mcp.WithString("date", append(opts, mcp.Pattern(`^\d{4}-\d{2}-\d{2}$`),
		mcp.Description(about+", as YYYY-MM-DD in harbour time"))...)
}

func argNights() mcp.ToolOption {
	return mcp.WithInteger("nights", mcp.Required(), mcp.Min(1), mcp.Max(30),
		mcp.Description("Number of nights alongside, the night of arrival included"))
}

var (
	shipKinds = []string{"container", "bulk", "tanker", "ro-ro", "passenger", "fishing"}
	reading   = hints(true, false, true)
	writing   = hints(false, false, false)
	setting   = hints(false, false, true)
	removing  = hints(false, true, false)
)

func hints(readOnly, destructive, idempotent bool) mcp.ToolAnnotation {
	return mcp.ToolAnnotation{ReadOnlyHint: &readOnly, DestructiveHint: &destructive, IdempotentHint: &idempotent,
		OpenWorldHint: new(false)}
}

// tools are all that the office does.
func (h *harbour) tools() []server.ServerTool {
	tool := func(name, title string, kind mcp.ToolAnnotation, answer func(mcp.CallToolRequest) *mcp.CallToolResult,
		description string, opts ...mcp.ToolOption) server.ServerTool {
		opts = append(opts, mcp.WithDescription(description), mcp.WithToolTitle(title), mcp.WithToolAnnotation(kind))
		handler := func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return answer(r), nil
		}
		return server.ServerTool{Tool: mcp.NewTool(name, opts...), Handler: handler}
	}
	return []server.ServerTool{
		tool("find_ships", "Find ships", reading, h.findShips,
			"Find ships in the harbour's register by part of their name, by IMO number or by type. Returns one "+
				"line for each ship with IMO number, name, type, flag, length and draught. Without arguments the "+
				"whole register is listed.",
			mcp.WithString("query", mcp.Description("Part of the ship's name, or its IMO number; upper and lower "+
				"case are the same")),
			mcp.WithString("type", mcp.Enum(shipKinds...), mcp.Description("Only ships of this type"))),
		tool("get_ship", "Ship's particulars", reading, h.getShip,
			"Everything that the register holds about one ship: flag, type, dimensions, the berth where she lies "+
				"and until when, and her open invoices.", argIMO()),
		tool("list_arrivals", "Expected arrivals", reading, h.listArrivals,
			"List the ships that have announced their arrival, in order of time, with the port they come from. "+
				"Berths are booked separately, see book_berth.",
			argDate("Only arrivals of this day; all announced ones when absent")),
		tool("announce_arrival", "Announce an arrival", writing, h.announceArrival,
			"Enter the expected time of arrival of a registered ship, so that pilots, linesmen and customs are "+
				"told. This books no berth and orders no pilot.",
			argIMO(), argDate("Day of arrival", mcp.Required()), mcp.WithString("time", mcp.Required(),
				mcp.Pattern("^[0-2][0-9]:[0-5][0-9]$"), mcp.Description("Expected time at the pilot station, HH:MM")),
			mcp.WithString("from", mcp.Required(), mcp.Description("Last port of call"))),
		tool("berth_plan", "Berth plan", reading, h.berthPlan,
			"The berth plan: every quay place with its length, depth and use, the ship that lies or is booked "+
				"there, until when, and the booking number. Free places have no ship.",
			mcp.WithBoolean("freeOnly", mcp.Description("Only places that nobody has booked")),
			mcp.WithOutputSchema[berths]()),
		tool("book_berth", "Book a berth", writing, h.bookBerth,
			"Reserve a berth (a place at the quay) for an arriving ship. The ship must fit the place: her length "+
				"may not exceed the berth's, and there must be half a metre of water below her draught. Returns the "+
				"booking number, which release_berth takes. Refused when the place is taken; see "+
				"berth_plan for free ones.",
			argIMO(), mcp.WithString("berth", mcp.Required(), mcp.Enum("Q1", "Q2", "Q3", "R1", "T1", "F1"),
				mcp.Description("The berth: Q1 to Q3 quays, R1 ro-ro ramp, T1 tanker jetty, F1 fishing pier")),
			argDate("Day of arrival", mcp.Required()), argNights()),
		tool("release_berth", "Release a berth", removing, h.releaseBerth,
			"Cancel a berth booking and free the place at once. This can't be undone: somebody else may book the "+
				"place in the next moment.",
			mcp.WithString("booking", mcp.Required(), mcp.Pattern("^B-[0-9]+$"),
				mcp.Description("Booking number as berth_plan or book_berth shows it, such as B-101"))),
		tool("tide_table", "Tide table", reading, h.tideTable,
			"High and low waters at the pier head with time and height above chart datum, for one day or several "+
				"in a row. Heights are predictions without the effect of wind and air pressure.",
			argDate("First day", mcp.Required()), mcp.WithInteger("days", mcp.Min(1), mcp.Max(14),
				mcp.DefaultNumber(1), mcp.Description("Number of days"))),
		tool("tidal_window", "Tidal window", reading, h.tidalWindow,
			"The times of a day between which a ship of a given draught can pass the harbour bar, with the "+
				"required clearance of one metre below the keel. The bar lies 4.2 m below chart datum.",
			argDate("The day", mcp.Required()), mcp.WithNumber("draughtM", mcp.Required(), mcp.Min(0.5), mcp.Max(12),
				mcp.Description("Draught of the ship in metres"))),
		tool("weather_report", "Weather report", reading, h.weatherReport,
			"Wind, sea state, visibility and air pressure at the pier head for one day in steps of six hours, and "+
				"the storm signal that is hoisted.", argDate("The day; today when absent")),
		tool("hoist_storm_signal", "Hoist the storm signal", setting, h.hoistSignal,
			"Set the storm signal at the pier head. It is seen by all ships in the roads, and small craft may not "+
				"leave from level 2 on. Level 'none' takes the signal down.",
			mcp.WithString("level", mcp.Required(), mcp.Enum("none", "1", "2", "3"),
				mcp.Description("1 strong wind, 2 gale, 3 storm"))),
		tool("harbour_chart", "Harbour chart", reading, h.chart,
			"A small chart of the harbour as a PNG image: quays and berths from west to east, free places green, "+
				"taken ones red. With a caption in words."),
		tool("order_pilot", "Order pilot and tugs", writing, h.orderPilot,
			"Order a pilot, and tugs where needed, for a ship that enters, leaves or shifts. Pilotage is "+
				"compulsory from 90 m length and for every tanker. The order is binding and charged from two hours "+
				"before its time.",
			argIMO(), mcp.WithString("movement", mcp.Required(), mcp.Enum("enter", "leave", "shift"),
				mcp.Description("What the ship does")),
			argDate("Day of the movement", mcp.Required()), mcp.WithString("time", mcp.Required(),
				mcp.Pattern("^[0-2][0-9]:[0-5][0-9]$"), mcp.Description("Time at which the pilot shall board, HH:MM")),
			mcp.WithInteger("tugs", mcp.Min(0), mcp.Max(3), mcp.DefaultNumber(0), mcp.Description("Number of tugs"))),
		tool("crew_list", "Crew list", reading, h.crewList,
			"The crew of a ship as declared on arrival: name and rank, master first. Personal data: ask only for "+
				"what the matter at hand needs.", argIMO()),
		tool("change_crew", "Sign crew on or off", writing, h.changeCrew,
			"Sign one member of a ship's crew on or off. The immigration office is told by the same entry. The "+
				"master can't be signed off before another one is signed on.",
			argIMO(), mcp.WithString("person", mcp.Required(), mcp.Description("Name and rank, such as 'P. Nowak, "+
				"mate'")),
			mcp.WithString("change", mcp.Required(), mcp.Enum("on", "off"),
				mcp.Description("Whether the person joins or leaves the ship"))),
		tool("cargo_manifest", "Cargo manifest", reading, h.manifest,
			"The cargo on board of a ship as declared: quantity, goods, and UN number of dangerous goods.", argIMO()),
		tool("declare_cargo", "Declare cargo", writing, h.declareCargo,
			"Add a consignment to the cargo manifest of a ship. Dangerous goods need their UN number; look it up "+
				"with check_dangerous_goods before.",
			argIMO(), mcp.WithString("goods", mcp.Required(), mcp.Description("What it is, in plain words")),
			mcp.WithNumber("tonnes", mcp.Required(), mcp.Min(0.1), mcp.Description("Weight in metric tonnes")),
			mcp.WithString("unNumber", mcp.Pattern("^[0-9]{4}$"), mcp.Description("UN number of dangerous goods, "+
				"four digits"))),
		tool("check_dangerous_goods", "Check dangerous goods", reading, h.dangerousGoods,
			"Class, proper shipping name and the harbour's rules for a UN number: at which berths such goods may "+
				"be handled, and what has to stand by.",
			mcp.WithString("unNumber", mcp.Required(), mcp.Pattern("^[0-9]{4}$"),
				mcp.Description("UN number, four digits without the letters"))),
		tool("quote_dues", "Quote harbour dues", reading, h.quoteDues,
			"Work out the harbour dues of a ship for a stay: by length and nights, with a surcharge for tankers. A "+
				"quote only: nothing is booked or charged.", argIMO(), argNights()),
		tool("list_invoices", "List invoices", reading, h.listInvoices,
			"List the invoices of the harbour office with number, ship, nights, amount in euros and state.",
			mcp.WithString("state", mcp.Enum("open", "paid", "void"), mcp.Description("Only invoices in this state"))),
		tool("issue_invoice", "Issue an invoice", writing, h.issueInvoice,
			"Issue an invoice over the harbour dues of a ship's stay and send it to her agent. The amount is that "+
				"of quote_dues. Returns the invoice's number.", argIMO(), argNights()),
		tool("void_invoice", "Void an invoice", removing, h.voidInvoice,
			"Void an open invoice. The number stays in the books; the ship's agent is sent a credit note with the "+
				"reason. A paid invoice can't be voided.",
			mcp.WithString("invoice", mcp.Required(), mcp.Pattern("^I-[0-9]+$"),
				mcp.Description("Invoice number such as I-501")),
			mcp.WithString("reason", mcp.Required(), mcp.MinLength(5), mcp.Description("Why, for the credit note"))),
		tool("log_book", "Log book", reading, h.logBook,
			"The harbour's log book: every movement and event, one line each, in order of time, with date, time, "+
				"place and wind. A whole year has about 5,000 lines; a month can be asked for.",
			mcp.WithInteger("year", mcp.Required(), mcp.Min(2025), mcp.Max(2026), mcp.Description("The year")),
			mcp.WithInteger("month", mcp.Min(1), mcp.Max(12), mcp.Description("Only this month"))),
		tool("add_log_entry", "Write into the log book", writing, h.addLogEntry,
			"Add a line to today's page of the log book. What is written can't be changed or removed afterwards; a "+
				"correction is another entry.",
			mcp.WithString("time", mcp.Required(), mcp.Pattern("^[0-2][0-9]:[0-5][0-9]$"),
				mcp.Description("When it happened, HH:MM")),
			mcp.WithString("text", mcp.Required(), mcp.MinLength(3), mcp.MaxLength(400),
				mcp.Description("What happened"))),
	}
}

func say(format string, a ...any) *mcp.CallToolResult {
	return mcp.NewToolResultText(fmt.Sprintf(format, a...))
}

func refuse(format string, a ...any) *mcp.CallToolResult {
	return mcp.NewToolResultErrorf(format, a...)
}

// lines is a text of lines, or the words for none.
func lines(all []string, none string) *mcp.CallToolResult {
	return say("%s", cmp.Or(strings.Join(all, "\n"), none))
}

// ship is the one that the request names, else nil and the answer to give.
func (h *harbour) ship(r mcp.CallToolRequest) (*ship, *mcp.CallToolResult) {
	imo := r.GetString("imo", "")
	if i := slices.IndexFunc(h.ships, func(s *ship) bool { return s.imo == imo }); i >= 0 {
		return h.ships[i], nil
	}
	return nil, refuse("No ship with IMO number %q is registered here. find_ships lists the register.", imo)
}

func (h *harbour) next(letter string) string {
	h.serial++
	return fmt.Sprintf("%s-%d", letter, h.serial)
}

func (s *ship) line() string {
	return fmt.Sprintf("IMO %s  %-16s %-10s %s  %g m long, %g m draught", s.imo, s.name, s.kind, s.flag, s.length,
		s.draught)
}

func (h *harbour) findShips(r mcp.CallToolRequest) *mcp.CallToolResult {
	query, kind := strings.ToLower(r.GetString("query", "")), r.GetString("type", "")
	var found []string
	for _, s := range h.ships {
		if (kind == "" || s.kind == kind) && (strings.Contains(strings.ToLower(s.name), query) || s.imo == query) {
			found = append(found, s.line())
		}
	}
	return lines(found, "No such ship is registered here.")
}

func (h *harbour) getShip(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	about := []string{s.line()}
	for _, b := range h.berths {
		if b.Ship == s.name {
			about = append(about, fmt.Sprintf("Berth %s until %s, booking %s", b.Berth, b.Until, b.Booking))
		}
	}
	for _, i := range h.invoices {
		if i.ship == s.name && i.state == "open" {
			about = append(about, i.line())
		}
	}
	return lines(about, "")
}

func (h *harbour) listArrivals(r mcp.CallToolRequest) *mcp.CallToolResult {
	var found []string
	for _, a := range h.arrivals {
		if strings.HasPrefix(a, r.GetString("date", "")) {
			found = append(found, a)
		}
	}
	return lines(found, "No arrival is announced.")
}

func (h *harbour) announceArrival(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	a := fmt.Sprintf("%s %s %s (IMO %s) from %s", r.GetString("date", ""), r.GetString("time", ""), s.name, s.imo,
		r.GetString("from", ""))
	h.arrivals = append(h.arrivals, a)
	slices.Sort(h.arrivals)
	return say("Announced: %s.", a)
}

// berths is the berth plan as structured content.
type berths struct {
	Berths []*berth `json:"berths"`
	Free   int      `json:"free"`
}

func (h *harbour) berthPlan(r mcp.CallToolRequest) *mcp.CallToolResult {
	var plan berths
	var text []string
	for _, b := range h.berths {
		if b.Ship == "" {
			plan.Free++
		} else if r.GetBool("freeOnly", false) {
			continue
		}
		plan.Berths = append(plan.Berths, new(*b))
		line := fmt.Sprintf("%s  %3.0f m long, %.1f m deep, %-9s  ", b.Berth, b.Length, b.Depth, b.Use)
		if b.Ship == "" {
			text = append(text, line+"free")
		} else {
			text = append(text, fmt.Sprintf("%s%s until %s (%s)", line, b.Ship, b.Until, b.Booking))
		}
	}
	return mcp.NewToolResultStructured(plan, strings.Join(text, "\n"))
}

func (h *harbour) bookBerth(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	date, err := time.Parse(time.DateOnly, r.GetString("date", ""))
	if err != nil {
		return refuse("%q is no date; give YYYY-MM-DD.", r.GetString("date", ""))
	}
	i := slices.IndexFunc(h.berths, func(b *berth) bool { return b.Berth == r.GetString("berth", "") })
	if i < 0 {
		return refuse("There is no berth %q. berth_plan lists them.", r.GetString("berth", ""))
	}
	switch b := h.berths[i]; {
	case b.Ship != "":
		return refuse("Berth %s is taken by %s until %s. berth_plan lists free ones.", b.Berth, b.Ship, b.Until)
	case s.length > b.Length:
		return refuse("%s is %g m long, berth %s has %g m.", s.name, s.length, b.Berth, b.Length)
	case s.draught+0.5 > b.Depth:
		return refuse("%s draws %g m and needs half a metre below; berth %s has %g m.", s.name, s.draught, b.Berth,
			b.Depth)
	default:
		b.Ship, b.Until, b.Booking = s.name, date.AddDate(0, 0, r.GetInt("nights", 1)).Format(time.DateOnly),
			h.next("B")
		return say("Booked: berth %s for %s from %s to %s. Booking number %s.", b.Berth, s.name,
			date.Format(time.DateOnly), b.Until, b.Booking)
	}
}

func (h *harbour) releaseBerth(r mcp.CallToolRequest) *mcp.CallToolResult {
	for _, b := range h.berths {
		if b.Booking != "" && b.Booking == r.GetString("booking", "") {
			was := b.Ship
			b.Ship, b.Until, b.Booking = "", "", ""
			return say("Berth %s is free again; it was booked for %s.", b.Berth, was)
		}
	}
	return refuse("There is no booking %q. berth_plan shows the bookings.", r.GetString("booking", ""))
}

// tide is one high or low water.
type tide struct {
	at     time.Time
	high   bool
	height float64 // metres above chart datum
}

// tides are the extremes of a day: a high water every 12 hours and 25 minutes, between springs and neaps every 15 days.
func tides(day time.Time) []tide {
	const half = 372*time.Minute + 30*time.Second
	epoch := time.Date(2025, 1, 1, 4, 17, 0, 0, time.UTC)
	var all []tide
	for n := int(day.Sub(epoch)/half) - 1; ; n++ {
		t := tide{at: epoch.Add(time.Duration(n) * half).Round(time.Minute), high: n%2 == 0}
		if !t.at.Before(day.AddDate(0, 0, 1)) {
			return all
		}
		rise := 1.4 + 0.4*math.Cos(2*math.Pi*float64(n)/58)
		if t.height = 2.3 - rise; t.high {
			t.height = 2.3 + rise
		}
		if !t.at.Before(day) {
			all = append(all, t)
		}
	}
}

func (h *harbour) tideTable(r mcp.CallToolRequest) *mcp.CallToolResult {
	day, err := time.Parse(time.DateOnly, r.GetString("date", ""))
	if err != nil {
		return refuse("%q is no date; give YYYY-MM-DD.", r.GetString("date", ""))
	}
	var table []string
	for n := range r.GetInt("days", 1) {
		for _, t := range tides(day.AddDate(0, 0, n)) {
			table = append(table, fmt.Sprintf("%s  %s water  %.1f m", t.at.Format("2006-01-02 15:04"),
				map[bool]string{true: "high", false: "low "}[t.high], t.height))
		}
	}
	return lines(table, "")
}

func (h *harbour) tidalWindow(r mcp.CallToolRequest) *mcp.CallToolResult {
	day, err := time.Parse(time.DateOnly, r.GetString("date", ""))
	if err != nil {
		return refuse("%q is no date; give YYYY-MM-DD.", r.GetString("date", ""))
	}
	need := r.GetFloat("draughtM", 0) + 1 - 4.2
	var windows []string
	for _, t := range tides(day) {
		if !t.high || t.height < need {
			continue
		}
		rise := t.height - 2.3
		half := 186 * time.Minute * 2 // always deep enough
		if x := (need - 2.3) / rise; x > -1 {
			half = time.Duration(math.Acos(x) / math.Pi * float64(372*time.Minute)).Round(time.Minute)
		}
		windows = append(windows, fmt.Sprintf("%s to %s, high water %s with %.1f m",
			t.at.Add(-half).Format("02 Jan 15:04"), t.at.Add(half).Format("02 Jan 15:04"),
			t.at.Format("15:04"), t.height))
	}
	return lines(windows, "No window on this day: even at high water there is too little depth over the bar.")
}

func (h *harbour) weatherReport(r mcp.CallToolRequest) *mcp.CallToolResult {
	day, err := time.Parse(time.DateOnly, r.GetString("date", harbourDay))
	if err != nil {
		return refuse("%q is no date; give YYYY-MM-DD.", r.GetString("date", ""))
	}
	report := []string{"Storm signal: " + h.signal}
	for n := range 4 {
		i := day.YearDay()*4 + n
		report = append(report, fmt.Sprintf("%s %02d:00  wind %s, sea %s, visibility %d km, %d hPa",
			day.Format(time.DateOnly), n*6, wind(i),
			[]string{"calm", "slight", "moderate", "rough"}[i%4], 4+i%17, 995+i%31))
	}
	return lines(report, "")
}

func wind(i int) string {
	return fmt.Sprintf("%s %d", []string{"N", "NE", "E", "SE", "S", "SW", "W", "NW", "WSW", "WNW", "SSW"}[i*7%11],
		2+i*5%7)
}

func (h *harbour) hoistSignal(r mcp.CallToolRequest) *mcp.CallToolResult {
	h.signal = r.GetString("level", "none")
	return say("Storm signal at the pier head: %s.", h.signal)
}

func (h *harbour) chart(mcp.CallToolRequest) *mcp.CallToolResult {
	const scale = 6
	water, quay := color.RGBA{0x9c, 0xc4, 0xe4, 0xff}, color.RGBA{0x70, 0x70, 0x70, 0xff}
	free, taken := color.RGBA{0x3c, 0xa0, 0x5a, 0xff}, color.RGBA{0xc8, 0x46, 0x3c, 0xff}
	img := image.NewPaletted(image.Rect(0, 0, 160, 48), color.Palette{water, quay, free, taken})
	fill := func(r image.Rectangle, c color.Color) {
		draw.Draw(img, r, image.NewUniform(c), image.Point{}, draw.Src)
	}
	fill(img.Rect, water)
	fill(image.Rect(0, 32, 160, 48), quay)
	var names []string
	x := 4
	for _, b := range h.berths {
		c := free
		if b.Ship != "" {
			c = taken
		} else {
			names = append(names, b.Berth)
		}
		w := int(b.Length) / scale
		fill(image.Rect(x, 24, x+w, 32), c)
		x += w + 2
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return refuse("The chart could not be drawn: %s.", err)
	}
	caption := "Berths from west to east: Q1 Q2 Q3 R1 T1 F1. Free (green): " + cmp.Or(strings.Join(names, " "), "none")
	return mcp.NewToolResultImage(caption, base64.StdEncoding.EncodeToString(b.Bytes()), "image/png")
}

func (h *harbour) orderPilot(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	return say("Ordered: a pilot and %d tugs for %s to %s on %s at %s. Order number %s.", r.GetInt("tugs", 0), s.name,
		r.GetString("movement", ""),
		r.GetString("date", ""), r.GetString("time", ""), h.next("P"))
}

func (h *harbour) crewList(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	return lines(s.crew, "No crew is declared.")
}

func (h *harbour) changeCrew(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	person := r.GetString("person", "")
	i := slices.Index(s.crew, person)
	switch off := r.GetString("change", "") == "off"; {
	case off && i < 0:
		return refuse("%q is not on the crew list of %s; see crew_list.", person, s.name)
	case !off && i >= 0:
		return refuse("%q is on the crew list of %s already.", person, s.name)
	case off && i == 0:
		return refuse("The master of %s can't be signed off before another one is signed on.", s.name)
	case off:
		s.crew = slices.Delete(s.crew, i, i+1)
	case strings.HasSuffix(person, ", master"):
		s.crew = slices.Insert(s.crew, 0, person)
	default:
		s.crew = append(s.crew, person)
	}
	return say("%s now has a crew of %d.", s.name, len(s.crew))
}

func (h *harbour) manifest(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	return lines(s.cargo, "In ballast: no cargo on board.")
}

func (h *harbour) declareCargo(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	c := fmt.Sprintf("%g t %s", r.GetFloat("tonnes", 0), r.GetString("goods", ""))
	if un := r.GetString("unNumber", ""); un != "" {
		c += ", UN " + un
	}
	s.cargo = append(s.cargo, c)
	return say("Declared on %s: %s. She has %d consignments on board.", s.name, c, len(s.cargo))
}

func (h *harbour) dangerousGoods(r mcp.CallToolRequest) *mcp.CallToolResult {
	rules := map[string]string{
		"1202": "UN 1202, gas oil, class 3, packing group III. Berth T1 only; foam monitor stands by.",
		"1203": "UN 1203, motor spirit, class 3, packing group II. Berth T1 only; no other ship within 100 m.",
		"2067": "UN 2067, ammonium nitrate based fertiliser, class 5.1. Berth Q2; fire tender stands by, no hot work.",
		"3480": "UN 3480, lithium ion batteries, class 9. Any quay; not beside passenger ships.",
	}
	un := r.GetString("unNumber", "")
	if rule := rules[un]; rule != "" {
		return say("%s", rule)
	}
	return refuse("UN %s is not handled in this harbour; ask the harbour master.", un)
}

func (s *ship) dues(nights int) float64 {
	perNight := 2.4 * s.length
	if s.kind == "tanker" {
		perNight *= 1.25
	}
	return math.Round(perNight*float64(nights)*100) / 100
}

func (h *harbour) quoteDues(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	return say("Dues of %s for %d nights: %.2f EUR.", s.name, r.GetInt("nights", 1), s.dues(r.GetInt("nights", 1)))
}

func (i *invoice) line() string {
	return fmt.Sprintf("%s  %-16s %2d nights  %8.2f EUR  %s", i.number, i.ship, i.nights, i.amount, i.state)
}

func (h *harbour) listInvoices(r mcp.CallToolRequest) *mcp.CallToolResult {
	var found []string
	for _, i := range h.invoices {
		if state := r.GetString("state", ""); state == "" || i.state == state {
			found = append(found, i.line())
		}
	}
	return lines(found, "No such invoice.")
}

func (h *harbour) issueInvoice(r mcp.CallToolRequest) *mcp.CallToolResult {
	s, none := h.ship(r)
	if none != nil {
		return none
	}
	nights := r.GetInt("nights", 1)
	i := &invoice{h.next("I"), s.name, "open", nights, s.dues(nights)}
	h.invoices = append(h.invoices, i)
	return say("Issued: %s", i.line())
}

func (h *harbour) voidInvoice(r mcp.CallToolRequest) *mcp.CallToolResult {
	n := slices.IndexFunc(h.invoices, func(i *invoice) bool { return i.number == r.GetString("invoice", "") })
	switch {
	case n < 0:
		return refuse("There is no invoice %q; see list_invoices.", r.GetString("invoice", ""))
	case h.invoices[n].state != "open":
		return refuse("Invoice %s is %s; only an open one can be voided.", h.invoices[n].number, h.invoices[n].state)
	}
	h.invoices[n].state = "void"
	return say("Void: %s (%s)", h.invoices[n].line(), r.GetString("reason", ""))
}

func (h *harbour) logBook(r mcp.CallToolRequest) *mcp.CallToolResult {
	entries := h.log
	if r.GetInt("year", 0) == logYear {
		entries = logOf(h.ships)
	}
	if month := r.GetInt("month", 0); month > 0 {
		page := fmt.Sprintf("%d-%02d-", r.GetInt("year", 0), month)
		entries = slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return !strings.HasPrefix(e, page) })
	}
	return lines(entries, "Nothing is written.")
}

// logOf is the log book of logYear: an entry about every 105 minutes.
func logOf(ships []*ship) []string {
	events := []string{"makes fast", "departs, pilot aboard", "passes inbound, all well",
		"bunkers, boom laid, no spill", "shifts with one tug", "anchors to wait for the tide",
		"lands a boat, crew of four ashore"}
	places := []string{"Q1", "Q2", "Q3", "R1", "T1", "F1", "roads", "pier head"}
	var entries []string
	for i := range logLines {
		at := time.Date(logYear, 1, 1, 0, 10, 0, 0, time.UTC).Add(time.Duration(i) * 105 * time.Minute)
		s := ships[i*5%len(ships)]
		text := fmt.Sprintf("%s (%s) %s", s.name, s.flag, events[i*3%len(events)])
		if i == 3217 {
			text = "Lighthouse reports a humpback whale off the pier head; traffic held for 40 minutes"
		}
		entries = append(entries, fmt.Sprintf("%s  %-9s  %s; wind %s", at.Format("2006-01-02 15:04"),
			places[i*11%len(places)], text, wind(i)))
	}
	return entries
}

func (h *harbour) addLogEntry(r mcp.CallToolRequest) *mcp.CallToolResult {
	entry := fmt.Sprintf("%s %s  office     %s", harbourDay, r.GetString("time", ""), r.GetString("text", ""))
	h.log = append(h.log, entry)
	return say("Written: %s", entry)
}
