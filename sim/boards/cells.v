// Models of Lattice's ECP5 cells that are neither a wire nor an expression, for a two-state simulator without delays.
// Sources: Lattice FPGA-TN-02204 (memory), FPGA-TN-02035 (DDR registers), FPGA-TN-02205 (multipliers), and yosys'
// techlibs/lattice for the modes that yosys uses and their behaviour.

// DDR input register. Q0 is D before a rising edge of SCLK, Q1 is D before the next falling edge; both appear at the
// next rising edge.
module IDDRX1F(input D, SCLK, RST, output reg Q0, Q1);
  parameter GSR = "DISABLED";
  reg rising, falling;
  initial {rising, falling, Q0, Q1} = 0;
  always @(posedge SCLK or posedge RST)
    if (RST) {rising, Q0, Q1} <= 0;
    else begin
      rising <= D;
      Q0 <= rising;
      Q1 <= falling;
    end
  always @(negedge SCLK or posedge RST)
    if (RST) falling <= 0;
    else falling <= D;
endmodule

// DDR output register. D0 and D1 are sampled at a rising edge of SCLK. Two cycles later Q is D0 while SCLK is high,
// then D1 while it is low.
module ODDRX1F(input D0, D1, SCLK, RST, output Q);
  parameter GSR = "DISABLED";
  reg [1:0] first, second, third;
  initial {first, second, third} = 0;
  always @(posedge SCLK or posedge RST)
    if (RST) {first, second, third} <= 0;
    else begin
      first <= {D1, D0};
      second <= first;
      third <= second;
    end
  assign Q = SCLK ? third[0] : third[1];
endmodule

// Block RAM of 1,024 words of 18 bits, with ports of 1, 2, 4, 9, 18 or 36 bits. Addresses count bits, without the ninth
// bit of each byte; in ports of 18 bits and more, the lowest address bits are byte enables of writes. With 36 bits, A
// writes (DIA low, DIB high) and B reads (DOA low, DOB high). A port's outputs are registers; RST sets them to zero and
// disables writes of the port. A port that reads a word while the other port writes it gets the old word.
module fanin_dp16kd(
  input CLKA, CEA, OCEA, WEA, RSTA, input [13:0] ADA, input [17:0] DIA, output [17:0] DOA,
  input CLKB, CEB, OCEB, WEB, RSTB, input [13:0] ADB, input [17:0] DIB, output [17:0] DOB
);
  parameter WIDTH_A = 18, WIDTH_B = 18;
  parameter REGISTER_A = 0, REGISTER_B = 0;    // a second register at the output
  parameter MODE_A = 0, MODE_B = 0;            // output of a write: 0: unchanged, 1: the new word, 2: the old word
  parameter ASYNCHRONOUS = 0;                  // 1: RST is asynchronous
  parameter [18431:0] INIT = 0;

  reg [17:0] memory [0:1023];
  integer i;
  initial for (i = 0; i < 1024; i = i + 1) memory[i] = INIT[18*i +: 18];

  function automatic [17:0] part(input [17:0] word, input [3:0] address, input integer width);
    case (width)
      1: part = {17'b0, word[{1'b0, address[3]} * 5'd9 + {2'b0, address[2:0]}]};
      2: part = {16'b0, word[{1'b0, address[3]} * 5'd9 + {2'b0, address[2:1], 1'b0} +: 2]};
      4: part = {14'b0, word[{1'b0, address[3]} * 5'd9 + {2'b0, address[2], 2'b0} +: 4]};
      9: part = {9'b0, address[3] ? word[17:9] : word[8:0]};
      default: part = word;
    endcase
  endfunction

  function automatic [17:0] changed(
    input [17:0] word, input [17:0] data, input [3:0] address, input [1:0] enables, input integer width
  );
    changed = word;
    case (width)
      1: changed[{1'b0, address[3]} * 5'd9 + {2'b0, address[2:0]}] = data[0];
      2: changed[{1'b0, address[3]} * 5'd9 + {2'b0, address[2:1], 1'b0} +: 2] = data[1:0];
      4: changed[{1'b0, address[3]} * 5'd9 + {2'b0, address[2], 2'b0} +: 4] = data[3:0];
      9: if (address[3]) changed[17:9] = data[8:0]; else changed[8:0] = data[8:0];
      default: begin
        if (enables[0]) changed[8:0] = data[8:0];
        if (enables[1]) changed[17:9] = data[17:9];
      end
    endcase
  endfunction

  wire resets_a = RSTA & (ASYNCHRONOUS != 0), resets_b = RSTB & (ASYNCHRONOUS != 0);
  reg [17:0] a, b, b_low, a_late, b_late, b_low_late;
  initial {a, b, b_low, a_late, b_late, b_low_late} = 0;

  generate
    if (WIDTH_A == 36) begin : wide_a
      wire [9:0] word = {ADA[13:5], 1'b0};
      always @(posedge CLKA)
        if (CEA & WEA) begin
          memory[word] <= changed(memory[word], DIA, ADA[3:0], ADA[1:0], 18);
          memory[word | 1] <= changed(memory[word | 1], DIB, ADA[3:0], ADA[3:2], 18);
        end
      assign DOA = REGISTER_B ? b_low_late : b_low;
    end else begin : narrow_a
      wire [9:0] word = ADA[13:4];
      wire write = WEA & ~RSTA;
      always @(posedge CLKA)
        if (CEA & write) memory[word] <= changed(memory[word], DIA, ADA[3:0], ADA[1:0], WIDTH_A);
      always @(posedge CLKA or posedge resets_a)
        if (resets_a) a <= 0;
        else if (RSTA) a <= 0;
        else if (CEA & (~write | (MODE_A != 0)))
          a <= part(write & (MODE_A == 1) ? changed(memory[word], DIA, ADA[3:0], ADA[1:0], WIDTH_A) : memory[word],
                    ADA[3:0], WIDTH_A);
      always @(posedge CLKA or posedge resets_a)
        if (resets_a) a_late <= 0;
        else if (RSTA) a_late <= 0;
        else if (OCEA) a_late <= a;
      assign DOA = WIDTH_B == 36 ? (REGISTER_B ? b_low_late : b_low) : REGISTER_A ? a_late : a;
    end
  endgenerate

  wire [9:0] word_b = WIDTH_B == 36 ? {ADB[13:5], 1'b1} : ADB[13:4];
  wire write_b = WEB & ~RSTB;
  always @(posedge CLKB)
    if (CEB & write_b) memory[word_b] <= changed(memory[word_b], DIB, ADB[3:0], ADB[1:0], WIDTH_B);
  always @(posedge CLKB or posedge resets_b)
    if (resets_b) {b, b_low} <= 0;
    else if (RSTB) {b, b_low} <= 0;
    else if (CEB & (~write_b | (MODE_B != 0))) begin
      b <= part(write_b & (MODE_B == 1) ? changed(memory[word_b], DIB, ADB[3:0], ADB[1:0], WIDTH_B) : memory[word_b],
                ADB[3:0], WIDTH_B);
      if (WIDTH_B == 36) b_low <= memory[{ADB[13:5], 1'b0}];
    end
  always @(posedge CLKB or posedge resets_b)
    if (resets_b) {b_late, b_low_late} <= 0;
    else if (RSTB) {b_late, b_low_late} <= 0;
    else if (OCEB) {b_late, b_low_late} <= {b, b_low};
  assign DOB = REGISTER_B ? b_late : b;
endmodule

// Product of two numbers of 18 bits, each signed or unsigned. Without registers, which yosys does not use.
module fanin_mult18x18d(input [17:0] A, B, input SIGNEDA, SIGNEDB, output [35:0] P);
  wire signed [35:0] a = {{18{SIGNEDA & A[17]}}, A}, b = {{18{SIGNEDB & B[17]}}, B};
  assign P = a * b;
endmodule
