// Host at a node's registers: one AXI4-Lite access at a time, as tasks.
// An answer other than OKAY ends the simulation.
`timescale 1ns / 1ps

module host (
    input clk,
    output reg [11:0] awaddr, output [2:0] awprot, output reg awvalid, input awready,
    output reg [31:0] wdata, output [3:0] wstrb, output reg wvalid, input wready,
    input [1:0] bresp, input bvalid, output bready,
    output reg [11:0] araddr, output [2:0] arprot, output reg arvalid, input arready,
    input [31:0] rdata, input [1:0] rresp, input rvalid, output rready
);
    assign awprot = 0;
    assign arprot = 0;
    assign wstrb = 15;
    assign bready = 1;
    assign rready = 1;
    initial begin
        awvalid = 0;
        wvalid = 0;
        arvalid = 0;
    end

    reg write_done = 0, read_done = 0;
    reg [31:0] value;

    always @(posedge clk) begin
        if (awready) awvalid <= 0;
        if (wready) wvalid <= 0;
        if (arready) arvalid <= 0;
        write_done <= bvalid;
        read_done <= rvalid;
        if (rvalid) value <= rdata;
        if ((bvalid && bresp != 0) || (rvalid && rresp != 0)) begin
            $display("FAIL: %m: the node refused an access");
            $fatal;
        end
    end

    task write(input [31:0] address, input [31:0] data);
        begin
            @(negedge clk);
            awaddr = address[11:0];
            wdata = data;
            awvalid = 1;
            wvalid = 1;
            @(negedge clk);
            while (!write_done) @(negedge clk);
        end
    endtask

    task write64(input [31:0] address, input [63:0] data);  // two words, the low one first
        begin
            write(address, data[31:0]);
            write(address + 4, data[63:32]);
        end
    endtask

    task read(input [31:0] address, output [31:0] data);
        begin
            @(negedge clk);
            araddr = address[11:0];
            arvalid = 1;
            @(negedge clk);
            while (!read_done) @(negedge clk);
            data = value;
        end
    endtask

    task expect_word(input [31:0] address, input [31:0] expected);
        reg [31:0] data;
        begin
            read(address, data);
            if (data != expected) begin
                $display("FAIL: %m: register %h is %h, not %h", address, data, expected);
                $fatal;
            end
        end
    endtask

    task poll(input [31:0] address, input [31:0] mask, input [31:0] expected);  // until the masked bits are equal
        reg [31:0] data;
        begin
            read(address, data);
            while ((data & mask) != expected) read(address, data);
        end
    endtask
endmodule
